"""Accelerate on a shared feed, with accumulated gradients and a state that can be resumed.

python examples/with_accelerate.py & python examples/with_accelerate.py & wait     # two jobs
"""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import feedline


def make_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    x = torch.randn(384, 10)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=50, shuffle=True)


if __name__ == "__main__":
    # With torchdata's loader around the feed, save_state() saves the place in the epoch too.
    config = DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4, dataloader_config=config)
    feed = feedline.share(make_loader, "accelerated", batch_size=64, history=1.0)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, feed)

    updates = 0
    for epoch in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                updates += accelerator.sync_gradients
                optimizer.step()
                optimizer.zero_grad()
        with tempfile.TemporaryDirectory() as folder:
            accelerator.save_state(folder)
        print(f"epoch {epoch}: {len(loader)} batches, {updates} updates so far")
