"""Loaders of a job's ranks (``shard=``), and states of loaders whose batches are overtaken."""

from __future__ import annotations

import itertools
import json
import multiprocessing
from typing import Any

import pytest
import torch.utils.data as data

import feedline
from dataloader.datasets import Numbers, drawing, equal, numbers
from feedline import DataLoader, orders

SAMPLES = 50


def ranks(world: int, batch_size: int, **keywords: Any) -> list[DataLoader]:
    """One loader for each rank."""
    keywords = {"shuffle": True, "seed": 6, **keywords}
    dataset = Numbers(SAMPLES, drawing)
    return [
        DataLoader(dataset, batch_size, shard=(rank, world), **keywords) for rank in range(world)
    ]


def together(steps: Any) -> list[int]:
    """Return the samples of all ranks, step by step."""
    return [number for step in steps for number in numbers(step)]


@pytest.mark.parametrize(("world", "batch_size"), [(1, 7), (2, 8), (3, 5), (4, 12), (7, 7)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_together_read_the_same_sequence(
    world: int, batch_size: int, drop_last: bool
) -> None:
    job = ranks(world, batch_size, drop_last=drop_last)
    whole = DataLoader(Numbers(SAMPLES), SAMPLES, shuffle=True, seed=6).samples(0, 0)
    steps = list(zip(*job, strict=True))
    assert [len(loader) for loader in job] == [len(steps)] * world
    got = together(steps)
    assert got == whole[: len(got)]
    assert SAMPLES - len(got) < (world * batch_size if drop_last else 1)
    for rank, loader in enumerate(job):
        for step in range(len(steps)):
            assert loader.samples(0, step) == numbers([steps[step][rank]])
        assert equal(loader.remake(0, 0), steps[0][rank])


def test_a_state_does_not_depend_on_the_ranks() -> None:
    whole = DataLoader(Numbers(SAMPLES), SAMPLES, shuffle=True, seed=6).samples(0, 0)
    got: list[int] = []
    state = ""
    for world, steps, workers in ((2, 2, 0), (3, 1, 1), (1, 2, 0), (4, 9, 0)):
        job = ranks(world, 4, num_workers=workers)
        for loader in job:
            if state:
                loader.load_state_dict(json.loads(state))
        got += together(itertools.islice(zip(*job, strict=True), steps))
        states = {json.dumps(loader.state_dict()) for loader in job}
        assert len(states) == 1, "all ranks are at the same place"
        state = states.pop()
    assert got == whole
    assert json.loads(state)["epoch"] == 1


def test_ranks_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(key, value)
    loader = DataLoader(Numbers(SAMPLES), 8, seed=1, shard="auto")
    assert numbers(loader)[:3] == [8, 9, 10], "ranks may be on several machines"


def test_ranks_that_cannot_be() -> None:
    def refused(text: str, **keywords: Any) -> None:
        keywords = {"seed": 1, "shard": (0, 2), **keywords}
        with pytest.raises(feedline.FeedValueError, match=text):
            DataLoader(Numbers(SAMPLES), 8, **keywords)

    refused("needs seed=", seed=None)
    refused("needs an order that all ranks can look up", sampler=data.SequentialSampler([1]))
    refused("needs in_order=True", in_order=False)
    refused("there is no rank 2 of 2", shard=(2, 2))
    with pytest.raises(feedline.BatchSizeError, match="has 3 samples left, and 4 ranks share it"):
        next(iter(DataLoader(Numbers(3), 8, seed=1, shard=(1, 4))))
    order = orders.Weighted([1.0] * 3, 40)
    assert numbers(DataLoader(Numbers(3), 5, sampler=order, seed=1, shard=(0, 1)))


@pytest.mark.parametrize("sampler", [None, list(range(30)), "batches"])
def test_a_state_knows_what_was_overtaken(sampler: Any) -> None:
    is_over = multiprocessing.Event()

    def slow(number: int) -> int:
        if number == 7:
            is_over.wait()
        return number

    dataset = Numbers(30, slow)
    how: dict[str, Any] = {"sampler": sampler, "batch_size": 3}
    if sampler == "batches":
        how = {"batch_sampler": data.BatchSampler(range(30), 3, drop_last=False)}
    loader = DataLoader(dataset, num_workers=2, in_order=False, seed=1, **how)
    batches = iter(loader)
    had = numbers(itertools.islice(batches, 6))
    state = json.loads(json.dumps({**loader.state_dict(), "sampler_rng": None}))
    is_over.set()
    assert 7 not in had
    assert state["ahead"]
    del state["sampler_rng"]
    del batches
    dataset.make = int
    again = DataLoader(dataset, num_workers=0, **how)
    again.load_state_dict(state)
    assert again.state_dict() == state
    rest = numbers(again)
    assert sorted(had + rest) == list(range(30))
    assert rest == sorted(rest)
    for wrong in ([[3, 1]], [[0, 2]], [["a"]], [[29, 31]] if sampler is None else [[5]]):
        with pytest.raises(feedline.FeedValueError):
            again.load_state_dict({**state, "ahead": wrong})
