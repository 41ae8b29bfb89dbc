"""`feedline.DataLoader` in place of torch's, under the frameworks."""

from __future__ import annotations

import itertools
import os
import threading
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
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.utils.data import Dataset, WeightedRandomSampler, default_collate
from transformers import Trainer, TrainerCallback, TrainingArguments

from conftest import Start
from feedline import DataLoader
from frameworks.test_lightning import Model, trainer
from support.child import say

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


def test_accelerate_keeps_the_order_of_a_seed(accelerator: Accelerator) -> None:
    """The loader that it builds asks ours for the order, in each epoch and after a resume."""
    batches: Any = accelerator.prepare(loader())
    assert [[n for batch in batches for n in batch["id"].tolist()] for _ in range(2)] == [
        order(0),
        order(1),
    ]
    rest: Any = accelerator.skip_first_batches(accelerator.prepare(loader()), 3)
    assert [n for batch in rest for n in batch["id"].tolist()] == order(0)[3 * BATCH :]


class Noting(nn.Module):
    """Notes the ids that it is asked about, as the Trainer calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.taken: list[int] = []

    def forward(self, x: Any, labels: Any, id: Any) -> dict[str, Any]:
        self.taken.extend(id.tolist())
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def hugging_face(model: Noting, folder: Path, **options: Any) -> Any:
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=3,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        **{"save_strategy": "no", **options},
    )
    made = Trainer(model, arguments)
    made.get_train_dataloader = loader
    return made


class StopTrainer(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == BATCHES + 5:
            raise Stop


def test_the_trainer_of_transformers_goes_on_with_exactly_the_rest(tmp_path: Path) -> None:
    whole = Noting()
    hugging_face(whole, tmp_path / "whole").train()
    assert whole.taken == order(0) + order(1) + order(2)
    first = hugging_face(Noting(), tmp_path, save_strategy="steps", save_steps=BATCHES + 3)
    first.add_callback(StopTrainer())
    with pytest.raises(Stop):
        first.train()
    model = Noting()
    resumed = hugging_face(model, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{BATCHES + 3}"))
    assert model.taken == order(1)[3 * BATCH :] + order(2)


def test_distributed_checkpoints_hold_its_state(tmp_path: Path) -> None:
    def saved(made: DataLoader, batches: int, folder: str) -> list[int]:
        taken = [row for batch in itertools.islice(made, batches) for row in batch["id"].tolist()]
        save({"loader": made}, checkpoint_id=tmp_path / folder, no_dist=True)
        return taken

    def rest(made: DataLoader, folder: str) -> list[int]:
        load({"loader": made}, checkpoint_id=tmp_path / folder, no_dist=True)
        return [row for batch in made for row in batch["id"].tolist()]

    assert saved(loader(), 3, "plan") + rest(loader(), "plan") == order(0)

    def weighted() -> DataLoader:
        sampler = WeightedRandomSampler([1.0, 3.0] * (SAMPLES // 2), SAMPLES)
        return DataLoader(Rows(), BATCH, sampler=sampler, num_workers=1)

    made = weighted()
    taken = saved(made, 3, "sampler")
    torch.manual_seed(99)
    assert len(taken + rest(weighted(), "sampler")) == SAMPLES
    overtaken = DataLoader(Held(), 1, num_workers=2, in_order=False, seed=1)
    batches = iter(overtaken)
    taken = [int(next(batches)) for _ in range(9)]
    save({"loader": overtaken}, checkpoint_id=tmp_path / "ahead", no_dist=True)
    assert overtaken.state_dict()["ahead"], "the held sample was overtaken"
    fresh = DataLoader(Held(), 1, num_workers=0, seed=2)
    Held.free.set()
    load({"loader": fresh}, checkpoint_id=tmp_path / "ahead", no_dist=True)
    assert sorted(taken + [int(batch) for batch in fresh]) == list(range(12))


class Held(Dataset[Any]):
    """Its sample 2 is made only once somebody says so, and never in a worker."""

    free = threading.Event()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Any:
        if number == 2:
            self.free.wait()
        return number


def fit_with_keras(backend: str) -> None:
    os.environ["KERAS_BACKEND"] = backend
    import keras

    taken: list[list[int]] = []

    class Pairs(Dataset[Any]):
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, number: int) -> Any:
            return torch.full((4,), float(number)), number

    def noted(samples: list[Any]) -> Any:
        taken.append([number for _, number in samples])
        return default_collate(samples)

    made = DataLoader(Pairs(), BATCH, shuffle=True, seed=6, collate_fn=noted)
    outputs = keras.Sequential([keras.layers.Dense(1)])
    outputs.compile(optimizer="sgd", loss="mse")
    outputs.fit(made, epochs=2, verbose=0)
    say("fit", taken=taken, orders=[[made.samples(e, s) for s in range(BATCHES)] for e in range(3)])


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_fits(start: Start, backend: str) -> None:
    fit = start(fit_with_keras, backend=backend).expect("fit")
    first, second, third = fit["orders"]
    # Keras reads one batch to build the model, and then begins anew.
    assert fit["taken"] == [first[0], *second, *third]
