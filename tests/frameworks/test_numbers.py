"""What frameworks learn from a feed's numbers: they are those of the DataLoader in its place."""

from __future__ import annotations

import copy
import math
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from timm.data.loader import PrefetchLoader
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

import feedline
from conftest import Start
from frameworks.conftest import Serve
from frameworks.sources import WIDTH, orders, shuffled
from support.child import say

SAMPLES = 50
BATCH = 8


@pytest.fixture(autouse=True)
def no_length_warnings() -> Iterator[None]:
    """Torch warns where an iterable dataset yields more than its length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Length of IterableDataset")
        yield


@pytest.fixture(params=[False, True], ids=["all", "drop_last"])
def feed(serve: Serve, request: pytest.FixtureRequest) -> Any:
    serve(SAMPLES, history=1.0)
    return feedline.attach("train", batch_size=BATCH, drop_last=request.param)


def batches_of(feed: Any) -> int:
    return SAMPLES // BATCH if feed.drop_last else math.ceil(SAMPLES / BATCH)


def plain(feed: Any) -> DataLoader[Any]:
    """A loader of the same samples, without a feed."""
    source = shuffled(SAMPLES, BATCH)
    return DataLoader(source.dataset, BATCH, drop_last=feed.drop_last)


def ids_of(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


@pytest.mark.parametrize("is_stateful", [False, True])
@pytest.mark.parametrize("dispatch_batches", [None, False])
def test_accelerate(feed: Any, is_stateful: bool, dispatch_batches: bool | None) -> None:
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(
            use_stateful_dataloader=is_stateful, dispatch_batches=dispatch_batches
        ),
    )
    try:
        loader = accelerator.prepare(feed)
        assert (loader.batch_size, loader.drop_last) == (BATCH, feed.drop_last)
        for one in (loader, accelerator.prepare(plain(feed))):
            assert (len(one), len(one.dataset)) == (batches_of(feed), SAMPLES)
            assert one.total_dataset_length == SAMPLES
        seen = sum(len(accelerator.gather_for_metrics(batch["id"])) for batch in loader)
        assert seen == SAMPLES - (SAMPLES % BATCH if feed.drop_last else 0)
        assert len(list(skip_first_batches(loader, 2))) == batches_of(feed) - 2
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


class Model(nn.Module):
    """As little as the Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)

    def forward(
        self, x: torch.Tensor, labels: torch.Tensor, id: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_the_trainer(feed: Any, tmp_path: Path) -> None:
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        # Not the feed's: it must not count.
        per_device_train_batch_size=BATCH * 4,
        per_device_eval_batch_size=BATCH * 4,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
    )
    trainer: Any = Trainer(Model(), arguments)
    loader = trainer.accelerator.prepare(feed)
    trainer.get_train_dataloader = lambda: loader
    assert trainer.num_examples(loader) == SAMPLES
    result = trainer.train()
    assert result.global_step == 2 * batches_of(feed)
    output = trainer.evaluation_loop(loader, "counting", prediction_loss_only=False)
    assert output.num_samples == SAMPLES
    assert len(output.predictions) == SAMPLES - (SAMPLES % BATCH if feed.drop_last else 0)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


class Lightning(lightning.LightningModule):
    """Asks its trainer while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)
        self.copied: list[int] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        if number == 2 and not self.copied:
            # With a live iterator in it.
            combined = self.trainer.fit_loop._combined_loader
            assert isinstance(combined, CombinedLoader)
            again = copy.deepcopy(combined)
            self.copied = ids_of(batch for batch, _, _ in again)
            pickle.loads(pickle.dumps(combined))
        return nn.functional.cross_entropy(self.layer(batch["x"]), batch["labels"])

    def predict_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        return batch["id"]


def test_lightning(feed: Any) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        max_epochs=2,
    )
    model = Lightning()
    trainer.fit(model, feed)
    assert trainer.num_training_batches == batches_of(feed)
    assert trainer.global_step == 2 * batches_of(feed)
    used: Any = trainer.train_dataloader
    assert (len(used.dataset), used.batch_size, used.drop_last) == (SAMPLES, BATCH, feed.drop_last)
    (order,) = orders(SAMPLES, 1)
    assert model.copied == order[: len(model.copied)]
    assert len(model.copied) == min(batches_of(feed) * BATCH, SAMPLES)
    predictions: Any = trainer.predict(model, feed)
    rebuilt: Any = trainer.predict_dataloaders
    assert (len(rebuilt), len(rebuilt.dataset), rebuilt.batch_size) == (
        batches_of(feed),
        SAMPLES,
        BATCH,
    )
    assert len(predictions) == batches_of(feed)


def test_timm(feed: Any) -> None:
    """Its validation script prints the size of the data set, and goes by the loader's length."""
    around: Any = PrefetchLoader(feed, device=torch.device("cpu"))
    assert (len(around), len(around.dataset)) == (batches_of(feed), SAMPLES)
    assert len(around.sampler) == SAMPLES


def adapt(backend: str) -> None:
    os.environ["KERAS_BACKEND"] = backend
    from keras.src.trainers.data_adapters.torch_data_loader_adapter import TorchDataLoaderAdapter

    for drop_last in (False, True):
        feed = feedline.attach("train", batch_size=BATCH, drop_last=drop_last)
        adapters = [TorchDataLoaderAdapter(one) for one in (feed, plain(feed))]
        found = [
            (one.num_batches, one.batch_size, one.has_partial_batch, one.partial_batch_size)
            for one in adapters
        ]
        say("adapted", same=found[0] == found[1], found=list(found[0]))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras(start: Start, serve: Serve, backend: str) -> None:
    serve(SAMPLES)
    job = start(adapt, backend=backend)
    for batches in (7, 6):
        report = job.expect("adapted")
        assert report["same"]
        assert report["found"] == [batches, BATCH, True, SAMPLES % BATCH]
