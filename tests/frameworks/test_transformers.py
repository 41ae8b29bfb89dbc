"""The Trainer of transformers on a feed: train, evaluate, and go on from a checkpoint."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import feedline
from conftest import Start
from frameworks.conftest import RunTwice, Serve
from frameworks.sources import WIDTH, orders
from support.child import hear, say

SAMPLES = 50
BATCH = 8
BATCHES = 7
EPOCHS = 3


class Model(nn.Module):
    """Notes the ids that it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)
        self.trained: list[int] = []
        self.evaluated: list[int] = []

    def forward(
        self, x: torch.Tensor, labels: torch.Tensor, id: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        (self.trained if self.training else self.evaluated).extend(id.tolist())
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer(model: Model, folder: str | Path, **options: Any) -> Any:
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        **{"save_strategy": "no", **options},
    )
    made = Trainer(model, arguments)
    feed = feedline.attach("train", batch_size=BATCH)
    made.get_train_dataloader = lambda: made.accelerator.prepare(feed)
    return made


def test_train_sees_every_sample_of_every_epoch(serve_apart: Serve, tmp_path: Path) -> None:
    serve_apart(SAMPLES)
    model = Model()
    result = trainer(model, tmp_path).train()
    assert result.global_step == EPOCHS * BATCHES
    assert model.trained == list(chain(*orders(SAMPLES, EPOCHS)))


def test_gradients_are_accumulated_to_the_last_batch(serve: Serve, tmp_path: Path) -> None:
    serve(SAMPLES)
    model = Model()
    result = trainer(model, tmp_path, gradient_accumulation_steps=4).train()
    assert result.global_step == EPOCHS * 2
    assert model.trained == list(chain(*orders(SAMPLES, EPOCHS)))


def test_evaluate_counts_every_sample_once(serve: Serve, tmp_path: Path) -> None:
    """The last batch is smaller than the others and must weigh less."""
    serve(SAMPLES)
    serve(20, name="val", replay=True)
    model = Model()
    val = feedline.attach("val", batch_size=BATCH)
    made = trainer(model, tmp_path, include_for_metrics=["loss"])
    made.get_eval_dataloader = lambda *_: made.accelerator.prepare(val)
    made.compute_metrics = lambda got: {"samples": len(got.predictions), "losses": len(got.losses)}
    metrics = made.evaluate()
    (order,) = orders(20, 1)
    assert model.evaluated == order
    assert (metrics["eval_samples"], metrics["eval_losses"]) == (20, 20)


class HangAt(TrainerCallback):
    """Reports what was trained on when it comes to a step, and goes no further."""

    def __init__(self, model: Model, step: int) -> None:
        self.model = model
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            say("hanging", ids=self.model.trained)
            hear()


def train_and_hang(folder: str, save_at: int, hang_at: int) -> None:
    model = Model()
    job = trainer(model, folder, save_strategy="steps", save_steps=save_at)
    job.add_callback(HangAt(model, hang_at))
    job.train()


def test_resume_in_mid_epoch_gets_exactly_the_rest(
    start: Start, serve: Serve, tmp_path: Path
) -> None:
    serve(SAMPLES, history=1.0)
    job = start(train_and_hang, folder=str(tmp_path), save_at=BATCHES + 3, hang_at=BATCHES + 5)
    first, second, third = orders(SAMPLES, EPOCHS)
    assert job.expect("hanging")["ids"] == first + second[: 5 * BATCH]
    job.kill()
    model = Model()
    resumed = trainer(model, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{BATCHES + 3}"))
    assert model.trained == second[3 * BATCH :] + third


def test_the_example(run_twice: RunTwice) -> None:
    for output in run_twice("with_transformers.py"):
        assert re.findall(r"^(\d+) steps, validation loss 0\.", output, re.M) == ["40"], output
