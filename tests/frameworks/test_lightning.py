"""Lightning on a feed: fit, validate, predict, and a resume that gets exactly the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn

import feedline
from conftest import Start
from frameworks.conftest import RunTwice, Serve
from frameworks.sources import WIDTH, orders
from support.child import hear, say

SAMPLES = 50
BATCH = 8
BATCHES = 7


class Model(lightning.LightningModule):
    """Notes the ids that each loop hands to it, epoch by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)
        self.trained: dict[int, list[int]] = {}
        self.validated: list[list[int]] = []
        self.predicted: list[int] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        self.trained.setdefault(self.current_epoch, []).extend(batch["id"].tolist())
        return nn.functional.cross_entropy(self.layer(batch["x"]), batch["labels"])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        self.validated[-1].extend(batch["id"].tolist())

    def predict_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        self.predicted.extend(batch["id"].tolist())
        return self.layer(batch["x"])


def trainer(**options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"enable_checkpointing": False, **options},
    )


def test_fit_and_validate_see_every_sample_of_every_epoch(serve_apart: Serve) -> None:
    serve_apart(SAMPLES)
    serve_apart(20, name="val", replay=True)
    feed = feedline.attach("train", batch_size=BATCH)
    val = feedline.attach("val", batch_size=BATCH)
    model = Model()
    trainer(max_epochs=3).fit(model, feed, val)
    assert model.trained == dict(enumerate(orders(SAMPLES, 3)))
    (once,) = orders(20, 1)
    # The sanity check takes two batches, then each epoch is followed by the whole set.
    assert model.validated == [once[: 2 * BATCH], once, once, once]


def test_predict_rebuilds_the_loader(serve: Serve) -> None:
    serve(SAMPLES, replay=True)
    feed = feedline.attach("train", batch_size=BATCH)
    model = Model()
    predictions = trainer().predict(model, feed)
    (order,) = orders(SAMPLES, 1)
    assert model.predicted == order
    assert [len(prediction) for prediction in predictions] == [8] * 6 + [2]


class Hooked(Model):
    """Attaches in Lightning's own hooks, which inspect how a loader is made."""

    def train_dataloader(self) -> feedline.Feed:
        return feedline.attach("train", batch_size=BATCH)

    predict_dataloader = train_dataloader


def test_a_feed_made_in_a_hook(serve: Serve) -> None:
    serve(SAMPLES, replay=True)
    model = Hooked()
    trainer(max_epochs=1).fit(model)
    trainer().predict(model)
    assert [model.trained[0], model.predicted] == orders(SAMPLES, 1) * 2


class HangAt(Callback):
    """Reports what was trained on when it comes to a step, and goes no further."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, model: Model, *_: Any) -> None:
        if trainer.global_step == self.step:
            say("hanging", ids=list(model.trained.values()))
            hear()


def train_and_hang(folder: str, checkpoint_at: int, hang_at: int) -> None:
    saving = ModelCheckpoint(folder, every_n_train_steps=checkpoint_at, filename="middle")
    feed = feedline.attach("train", batch_size=BATCH)
    run = trainer(max_epochs=3, enable_checkpointing=True, callbacks=[saving, HangAt(hang_at)])
    run.fit(Model(), feed)


def test_resume_in_mid_epoch_gets_exactly_the_rest(
    start: Start, serve_apart: Serve, tmp_path: Path
) -> None:
    serve_apart(SAMPLES, history=1.0)
    job = start(
        train_and_hang, folder=str(tmp_path), checkpoint_at=BATCHES + 3, hang_at=BATCHES + 5
    )
    first, second, third = orders(SAMPLES, 3)
    assert job.expect("hanging")["ids"] == [first, second[: 5 * BATCH]]
    job.kill()
    model = Model()
    feed = feedline.attach("train", batch_size=BATCH)
    trainer(max_epochs=3).fit(model, feed, ckpt_path=tmp_path / "middle.ckpt")
    assert model.trained == {1: second[3 * BATCH :], 2: third}


def test_resume_after_a_whole_epoch(serve: Serve, tmp_path: Path) -> None:
    serve(SAMPLES, history=1.0)
    saving = ModelCheckpoint(tmp_path, filename="end")
    with feedline.attach("train", batch_size=BATCH) as feed:
        run = trainer(max_epochs=1, enable_checkpointing=True, callbacks=[saving])
        run.fit(Model(), feed)
    model = Model()
    feed = feedline.attach("train", batch_size=BATCH)
    trainer(max_epochs=3).fit(model, feed, ckpt_path=tmp_path / "end.ckpt")
    assert sorted(model.trained) == [1, 2]
    for ids in model.trained.values():
        assert sorted(ids) == list(range(SAMPLES))


def test_a_limit_on_the_batches_of_an_epoch(serve: Serve) -> None:
    """Leaving an epoch early gives the place back; what comes next is one from its beginning."""
    serve(SAMPLES)
    model = Model()
    feed = feedline.attach("train", batch_size=BATCH)
    trainer(max_epochs=2, limit_train_batches=2).fit(model, feed)
    assert [len(ids) for ids in model.trained.values()] == [2 * BATCH] * 2


class Ranked(Model):
    """Attaches where Lightning has made the ranks known to each other."""

    def train_dataloader(self) -> feedline.Feed:
        return feedline.attach("train", batch_size=BATCH, shard="auto")


def fit_as_ranks() -> None:
    """Lightning starts this once more, as the second rank; both report through one pipe."""
    model = Ranked()
    trainer(max_epochs=2, devices=2, strategy="ddp").fit(model)
    say("rank", rank=model.global_rank, ids=list(model.trained.values()))


def test_ranks_split_each_global_batch(start: Start, serve: Serve) -> None:
    serve(SAMPLES)
    job = start(fit_as_ranks)
    reports = [job.expect("rank") for _ in range(2)]
    assert sorted(report["rank"] for report in reports) == [0, 1]
    for epoch, order in enumerate(orders(SAMPLES, 2)):
        parts = [report["ids"][epoch] for report in reports]
        assert [len(part) for part in parts] == [SAMPLES // 2] * 2
        for first in range(0, SAMPLES // 2, BATCH):
            step = [number for part in parts for number in part[first : first + BATCH]]
            assert sorted(step) == sorted(order[2 * first : 2 * (first + BATCH)])


def test_the_example(run_twice: RunTwice) -> None:
    for output in run_twice("with_lightning.py"):
        assert re.findall(r"^(\d+) steps, validation loss 0\.", output, re.M) == ["96"], output
