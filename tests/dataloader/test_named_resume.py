"""Going on in mid-epoch with a name: what was consumed is not made again."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import feedline
from dataloader.datasets import Numbers
from feedline import DataLoader
from support.waiting import eventually

# Nobody can make as many in the time of a test.
SAMPLES = 10_000_000


class Noting(Numbers):
    """Notes each sample that is made, in a file."""

    def __init__(self, path: Path, samples: int = SAMPLES) -> None:
        super().__init__(samples)
        self.path = path

    def __getitem__(self, number: int) -> Any:
        with open(self.path, "a") as file:
            file.write(f"{number}\n")
        return torch.tensor(number)

    def made(self) -> list[int]:
        """Return what was made so far."""
        return [int(line) for line in self.path.read_text().split()]


@pytest.fixture
def dataset(tmp_path: Path) -> Noting:
    """Return a dataset that notes what it makes."""
    return Noting(tmp_path / "made")


def loader(dataset: Noting, batch_size: int = 8, **keywords: Any) -> Any:
    """One job's loader."""
    arguments = {"shuffle": True, "num_workers": 2, "seed": 4, "linger_secs": 0.1}
    small: dict[str, Any] = {"history": 0.0}
    # What identifies the loader: the file grows.
    own = {**small, **arguments, **keywords}
    return DataLoader(dataset, batch_size, name="resume", key="noting", **own)


def numbers_from(job: Any, epoch: int, sample: int, count: int) -> list[int]:
    """Return the numbers of some samples, by the plan."""
    size = job.dataset.batch_size
    assert sample % size == count % size == 0
    steps = range(sample // size, (sample + count) // size)
    return [number for step in steps for number in job.samples(epoch, step)]


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


@pytest.mark.parametrize("epoch", [0, 3])
def test_the_first_job_goes_straight_to_its_place(dataset: Noting, epoch: int) -> None:
    with loader(dataset) as one:
        place = {"epoch": epoch, "sample": 9_998_000}
        one.load_state_dict({**one.state_dict(), **place})
        got = [number for batch in one for number in batch.tolist()]
        assert got == numbers_from(one, epoch, 9_998_000, 2000)
        assert one.state_dict()["epoch"] == epoch + 1
        assert one.state_dict()["sample"] == 0
        assert len(one) == SAMPLES // 8
        # The next epoch is whole, and comes after it.
        second = iter(one)
        assert next(second).tolist() == one.samples(epoch + 1, 0)
        assert len(dataset.made()) < SAMPLES // 2


def test_after_a_restart_nothing_is_made_again(dataset: Noting) -> None:
    with loader(dataset, reconnect_secs=60) as one:
        one.load_state_dict({**one.state_dict(), "epoch": 0, "sample": 9_990_000})
        batches = iter(one)
        got = [number for _ in range(5) for number in next(batches).tolist()]
        before = len(dataset.made())
        os.kill(one.stats()["server_pid"], signal.SIGKILL)
        got += [number for batch in batches for number in batch.tolist()]
        assert got == numbers_from(one, 0, 9_990_000, 10_000)
        assert len(dataset.made()) - before < SAMPLES // 2


def test_two_jobs_that_come_together_go_to_the_earlier_place(dataset: Noting) -> None:
    with (
        loader(dataset, wait_for=2) as one,
        loader(dataset, 16, wait_for=2) as other,
    ):
        one.load_state_dict({**one.state_dict(), "epoch": 0, "sample": 9_996_000})
        other.load_state_dict({**other.state_dict(), "epoch": 0, "sample": 9_992_000})
        got = read_side_by_side(one, other)
        assert got[0] == numbers_from(one, 0, 9_996_000, 4000)
        assert got[1] == numbers_from(other, 0, 9_992_000, 8000)
        assert len(dataset.made()) < SAMPLES // 2


def read_side_by_side(*jobs: Any) -> list[list[int]]:
    """Read an epoch's rest in a thread for each job."""

    def read(job: Any) -> list[int]:
        return [number for batch in job for number in batch.tolist()]

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(read, jobs))


def test_a_job_that_has_not_asked_yet_keeps_its_place(tmp_path: Path) -> None:
    """It is attached: the other, which wants a later place, does not have the epoch pass it by."""
    dataset = Noting(tmp_path / "made", 20_000)
    keywords = {"history": 1.0, "stall_timeout_secs": 3600}
    with loader(dataset, **keywords) as one, loader(dataset, 16, **keywords) as other:
        one.load_state_dict({**one.state_dict(), "epoch": 0, "sample": 2000})
        first = iter(one)
        assert next(first).tolist() == one.samples(0, 250)
        other.load_state_dict({**other.state_dict(), "epoch": 0, "sample": 1968})
        assert next(iter(other)).tolist() == other.samples(0, 123)
        made = set(dataset.made())
        assert set(numbers_from(one, 0, 0, 2000)) <= made, "the epoch's beginning was made"


def test_ranks_go_straight_to_their_place(dataset: Noting) -> None:
    with loader(dataset, shard=(0, 2)) as one, loader(dataset, shard=(1, 2)) as other:
        state = {**one.state_dict(), "epoch": 0, "sample": 9_984_000}
        for rank in (one, other):
            rank.load_state_dict(state)
        got = read_side_by_side(one, other)
        for rank, numbers in zip((one, other), got, strict=True):
            steps = range(624_000, SAMPLES // 16)
            assert numbers == [number for step in steps for number in rank.samples(0, step)]
        assert len(dataset.made()) < SAMPLES // 2
