"""`feedline.DataLoader` in place of torch's, under the frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import Dataset

from feedline import DataLoader
from frameworks.test_lightning import Model, trainer

SAMPLES = 50
BATCH = 8
BATCHES = 7


class Rows(Dataset[Any]):
    """Rows as the model of the feeds' tests takes them."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Any:
        return {"id": number, "x": torch.rand(8), "labels": number % 2}


def loader(**keywords: Any) -> DataLoader:
    return DataLoader(Rows(), BATCH, shuffle=True, seed=6, num_workers=2, **keywords)


def order(epoch: int) -> list[int]:
    plan = loader()
    return [number for step in range(BATCHES) for number in plan.samples(epoch, step)]


class Stop(Exception):
    """The job ends here."""


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise Stop


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model()
    made.layer = nn.Linear(8, 2)
    return made


def test_lightning_fits_and_validates(model: Model) -> None:
    validation = DataLoader(Rows(), 16, num_workers=1)
    trainer(max_epochs=2).fit(model, loader(), validation)
    assert model.trained == {0: order(0), 1: order(1)}
    assert model.validated[1:] == [list(range(SAMPLES))] * 2


def test_lightning_resumes_in_mid_epoch_with_exactly_the_rest(model: Model, tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=BATCHES + 3, filename="middle")
    first = trainer(
        max_epochs=3, enable_checkpointing=True, callbacks=[saving, StopAt(BATCHES + 5)]
    )
    with pytest.raises(Stop):
        first.fit(model, loader())
    model.trained.clear()
    trainer(max_epochs=3).fit(model, loader(), ckpt_path=tmp_path / "middle.ckpt")
    assert model.trained == {1: order(1)[3 * BATCH :], 2: order(2)}


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """Accelerate keeps its settings for the whole process."""
    yield Accelerator(cpu=True, gradient_accumulation_steps=4)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def test_accelerate_takes_it(accelerator: Accelerator) -> None:
    """It makes a loader of its own around the dataset; the samples and the updates are right."""
    layer = nn.Linear(8, 2)
    prepared: Any = accelerator.prepare(
        layer, torch.optim.SGD(layer.parameters(), lr=0.1), loader()
    )
    network, _, batches = prepared
    seen, updates = [], 0
    for batch in batches:
        with accelerator.accumulate(network):
            accelerator.backward(network(batch["x"]).sum())
            updates += accelerator.sync_gradients
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(SAMPLES))
    assert updates == 2
