"""Ray Tune trials on a shared loader: the first trial starts its server, the others attach.

python examples/with_ray.py
"""

import os
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import feedline


def make_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    images = torch.rand(2000, 64)
    return DataLoader(TensorDataset(images, images.argmax(1)), batch_size=50, shuffle=True)


def train(config: dict[str, Any]) -> None:
    # history: a trial that begins in the middle of an epoch gets all of it.
    # linger_secs: Ray takes its time between one trial's end and the next one's beginning.
    feed = feedline.share(make_loader, "ray-example", batch_size=32, history=1.0, linger_secs=60.0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
    for _ in range(4):
        samples = 0
        for images, labels in feed:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(images)
        # ASHA stops poor trials here; a trial may be stopped in mid-epoch as well.
        tune.report({"loss": loss.item(), "samples": samples, "server": feed.stats()["server_pid"]})


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
    tuner = tune.Tuner(
        train,
        param_space={"rate": tune.grid_search([1.0, 0.1, 0.001])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=ASHAScheduler()),
        run_config=tune.RunConfig(storage_path=os.path.abspath("ray_results"), verbose=0),
    )
    results = tuner.fit()
    for result in results:
        metrics = result.metrics
        print(f"rate {result.config['rate']}: {metrics['samples']} samples an epoch, ", end="")
        print(f"{metrics['training_iteration']} epochs, loss {metrics['loss']:.3f}")
    servers = {result.metrics["server"] for result in results}
    print(f"{len(results)} trials, {len(servers)} server")
