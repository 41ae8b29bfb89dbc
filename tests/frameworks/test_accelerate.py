"""Accelerate on a feed: accumulation, placement, skipping, and a state saved in mid-epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from torch import nn

import feedline
from conftest import Start
from frameworks.conftest import RunTwice, Serve
from frameworks.sources import WIDTH, orders
from support.child import hear, say

SAMPLES = 46
BATCH = 8
BATCHES = 6


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Accelerate keeps its settings for the whole process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def prepared(accelerator: Any) -> Any:
    model = nn.Linear(WIDTH, 2)
    feed = feedline.attach("train", batch_size=BATCH)
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), feed)


def ids_of(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


def test_gradients_are_accumulated_to_the_last_batch(serve_apart: Serve) -> None:
    """Six batches at an accumulation of four are two updates: the second one is the epoch's end."""
    serve_apart(SAMPLES)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, optimizer, loader = prepared(accelerator)
    updates = 0
    seen: list[list[int]] = []
    for _ in range(2):
        seen.append([])
        for batch in loader:
            with accelerator.accumulate(model):
                assert batch["x"].device == accelerator.device
                loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
                accelerator.backward(loss)
                updates += accelerator.sync_gradients
                optimizer.step()
                optimizer.zero_grad()
            seen[-1].extend(batch["id"].tolist())
    assert len(loader) == BATCHES
    assert updates == 4
    assert seen == orders(SAMPLES, 2)


def test_a_model_s_metrics_are_of_all_samples(serve: Serve) -> None:
    """`gather_for_metrics` cuts what it takes for padding off the last batch."""
    serve(SAMPLES, replay=True)
    accelerator = Accelerator(cpu=True)
    _, _, loader = prepared(accelerator)
    gathered = [accelerator.gather_for_metrics(batch["id"]) for batch in loader]
    assert torch.cat(gathered).tolist() == orders(SAMPLES, 1)[0]


def test_skip_first_batches(serve: Serve) -> None:
    serve(SAMPLES)
    _, _, loader = prepared(Accelerator(cpu=True))
    first, second = orders(SAMPLES, 2)
    assert ids_of(skip_first_batches(loader, 2)) == first[2 * BATCH :]
    assert ids_of(loader) == second


def exact() -> Any:
    """Have `save_state` save the place in the feed too, by torchdata's StatefulDataLoader."""
    return Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True)
    )


def train_and_hang(folder: str, save_at: int, hang_at: int) -> None:
    accelerator = exact()
    _, _, loader = prepared(accelerator)
    seen = [ids_of(loader), []]
    for number, batch in enumerate(loader, 1):
        seen[-1].extend(batch["id"].tolist())
        if number == save_at:
            accelerator.save_state(folder)
        if number == hang_at:
            say("hanging", ids=seen)
            hear()


def test_a_state_saved_in_mid_epoch_has_exactly_the_rest(
    start: Start, serve: Serve, tmp_path: Path
) -> None:
    serve(SAMPLES, history=1.0)
    job = start(train_and_hang, folder=str(tmp_path), save_at=2, hang_at=4)
    first, second, third = orders(SAMPLES, 3)
    assert job.expect("hanging")["ids"] == [first, second[: 4 * BATCH]]
    job.kill()
    accelerator = exact()
    _, _, loader = prepared(accelerator)
    accelerator.load_state(tmp_path)
    assert [ids_of(loader), ids_of(loader)] == [second[2 * BATCH :], third]


def test_a_state_saved_after_an_epoch_begins_the_next(serve: Serve, tmp_path: Path) -> None:
    """Even if the job had read that one too: a newcomer would get the third."""
    serve(SAMPLES, history=1.0)
    first, second, third = orders(SAMPLES, 3)
    accelerator = exact()
    _, _, loader = prepared(accelerator)
    assert ids_of(loader) == first
    accelerator.save_state(tmp_path)
    assert ids_of(loader) == second
    loader.dataset.feed.close()
    accelerator = exact()
    _, _, again = prepared(accelerator)
    accelerator.load_state(tmp_path)
    assert [ids_of(again), ids_of(again)] == [second, third]


def test_the_example(run_twice: RunTwice) -> None:
    for output in run_twice("with_accelerate.py"):
        epochs = re.findall(r"epoch (\d): (\d) batches, (\d) updates", output)
        assert epochs == [("0", "6", "2"), ("1", "6", "4")], output
