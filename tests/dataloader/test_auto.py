"""``num_workers="auto"``: what the pool decides is tested in Rust; here, what is made of it."""

from __future__ import annotations

import errno
import os
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import feedline
from dataloader.datasets import Numbers, drawing, equal
from feedline import DataLoader, _auto_size, _forker
from feedline._core import PoolSize


class Wishes:
    """In place of ``PoolSize``: a number of workers that the test sets."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.most = 4
        self.why = "the test says so"

    def look(self, owner: Any, stand_ins: int, report: Any) -> int:
        return self.workers

    def pause(self) -> None:
        pass

    def __index__(self) -> int:
        return self.workers


def test_batches_are_those_of_a_fixed_number() -> None:
    dataset = Numbers(60, drawing)
    auto = DataLoader(dataset, 8, shuffle=True, num_workers="auto", seed=3)
    fixed = DataLoader(dataset, 8, shuffle=True, num_workers=1, seed=3)
    for _ in range(2):
        assert equal(list(auto), list(fixed))


def test_workers_are_started_and_end_after_their_runs() -> None:
    loader = DataLoader(
        Numbers(1 << 20, lambda number: (number, os.getpid())),
        4,
        num_workers="auto",
        persistent_workers=True,
    )
    wishes = Wishes(1)
    loader._size = wishes  # type: ignore[assignment]
    seen: list[int] = []
    batches = iter(loader)

    def take() -> set[int]:
        numbers, pids = next(batches)
        seen.extend(numbers.tolist())
        return set(pids.tolist())

    def alive() -> int:
        assert loader._pool is not None
        return len(loader._pool._alive)

    with loader:
        first = take()
        assert len(first) == 1
        wishes.workers, pids = 3, set[int]()
        while len(pids) < 3:
            pids |= take()
        wishes.workers = 1
        while alive() > 1:
            take()
        # What was in flight may still be of the others.
        for _ in range(8):
            take()
        assert take() == first, "the others have ended"
        wishes.workers = 2
        while not take() - pids:
            pass
    assert seen == list(range(len(seen)))


class FewForks:
    """In place of ``os`` in the forker: a system that starts two workers and no more."""

    def __init__(self) -> None:
        self.forks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fork(self) -> int:
        self.forks += 1
        if self.forks > 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return os.fork()


def test_a_pool_does_without_workers_that_can_not_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_forker, "os", FewForks())
    loader = DataLoader(Numbers(1 << 20), 4, num_workers="auto", multiprocessing_context="fork")
    size = PoolSize(3.0)
    loader._size = size
    assert size.workers == 3
    batches = iter(loader)
    while size.workers == 3:
        next(batches)
    assert loader.pool_size == (2, 2, "the system starts no more processes")
    next(batches)


def test_a_fixed_number_of_workers_that_can_not_be_started_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_forker, "os", FewForks())
    loader = DataLoader(Numbers(1 << 20), 4, num_workers=3, multiprocessing_context="fork")
    message = r"for worker 2: .*\n  give a smaller num_workers"
    with pytest.raises(feedline.WorkerError, match=message):
        for _ in loader:
            pass


@pytest.mark.parametrize(("ranks", "cores"), [("4", 2.0), ("", 8.0), ("x", 8.0), ("0", 8.0)])
def test_ranks_of_one_machine_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, ranks: str, cores: float
) -> None:
    monkeypatch.setattr(_auto_size, "allowed_cores", lambda: 8.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert DataLoader(Numbers(10), num_workers="auto").num_workers == cores


def test_the_size_and_the_reason_are_told() -> None:
    loader = DataLoader(Numbers(10), num_workers="auto")
    size = loader.pool_size
    assert (size.workers, size.why) == (loader.num_workers, "nothing is measured yet")
    assert size.most >= size.workers >= 1
    list(loader)
    assert loader.pool_size.most == size.most
    assert DataLoader(Numbers(10), num_workers=2).pool_size == (2, 2, "num_workers=2")


def test_a_loader_that_is_made_again_finds_its_number_too() -> None:
    loader = DataLoader(Numbers(10), num_workers="auto")
    assert repr(loader.num_workers).startswith("auto")
    again = DataLoader(Numbers(10), num_workers=loader.num_workers)
    assert again.pool_size.why == "nothing is measured yet"
    unpickled = pickle.loads(pickle.dumps(DataLoader([1, 2], num_workers="auto")))
    assert unpickled.pool_size.why == "nothing is measured yet"
    assert [batch.item() for batch in unpickled] == [1, 2]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "number", "message"),
    [
        (Stream(), "auto", "depends on how many there are\n  give a number"),
        (Numbers(3), "many", "num_workers='many' is not a number, nor \"auto\""),
    ],
)
def test_what_can_not_be_is_refused(dataset: Any, number: Any, message: str) -> None:
    with pytest.raises(feedline.FeedValueError, match=message):
        DataLoader(dataset, num_workers=number)


def test_a_name_shares_a_pool_that_finds_its_number(servers_leave: None) -> None:
    keywords: dict[str, Any] = {"shuffle": True, "seed": 1, "epochs": 1, "linger_secs": 0.1}
    with DataLoader(Numbers(12), 4, num_workers="auto", name="auto", **keywords) as loader:
        got = torch.cat(list(loader)).tolist()
        assert got == [number for step in range(3) for number in loader.samples(0, step)]
