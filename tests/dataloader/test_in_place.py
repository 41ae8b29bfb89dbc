"""Served loaders, whose workers write samples where jobs read them, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

import feedline
from dataloader.datasets import Numbers, equal, fields, numbers
from feedline import DataLoader
from feedline._pool import Pool
from support.processes import children_of, children_of_this_process
from support.waiting import eventually

SAMPLES = 400


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each batch that a pool has made: whether it stands in a ring."""
    taken: list[bool] = []
    take = Pool.take

    def noting(self: Pool, **keywords: Any) -> Any:
        got = take(self, **keywords)
        if got is not None:
            taken.append(self.filling is not None and got[1] is self.filling)
        return got

    monkeypatch.setattr(Pool, "take", noting)
    return taken


def loader(dataset: Any, batch_size: int = 8, **keywords: Any) -> Any:
    """Return a loader as a server has it."""
    keywords = {"num_workers": 2, "persistent_workers": True, "shuffle": True, **keywords}
    return DataLoader(dataset, batch_size, seed=4, **keywords)


@contextlib.contextmanager
def served(made: Any, **options: Any) -> Iterator[feedline.Server]:
    """Serve a loader from this process; its workers have gone at the end."""
    try:
        with feedline.Server(made, "place", **{"epochs": 3, **options}) as server:
            yield server
    finally:
        made.close()


def image(number: int) -> Any:
    """Return a sample of some size, of which every byte says which one it is."""
    made = torch.full((3, 16, 16), number % 251, dtype=torch.uint8)
    return made, number, float(number) / 3


def alone(dataset: Any, batch_size: int = 8) -> Any:
    """Return a loader in this process that gives the same."""
    return DataLoader(dataset, batch_size, shuffle=True, seed=4)


def chain(batches: Iterable[Any]) -> str:
    """Return a hash of all samples in order, whatever the batches."""
    digest = hashlib.sha256()
    for pictures, labels, thirds in batches:
        for picture, label, third in zip(pictures, labels, thirds, strict=True):
            digest.update(picture.numpy().tobytes() + label.numpy().tobytes())
            digest.update(third.numpy().tobytes())
    return digest.hexdigest()


def kept(batch: Any) -> Any:
    """Return a copy: the ring is small."""
    return [part.clone() for part in batch]


def chains(feed: Any, epochs: int) -> list[str]:
    """Read epochs."""
    return [chain(map(kept, feed)) for _ in range(epochs)]


def workers() -> list[int]:
    """Return the workers of the pool of this process."""
    return [worker for forker in children_of_this_process() for worker in children_of(forker)]


def test_batches_stand_in_the_ring_and_are_those_of_a_loader_alone(in_place: list[bool]) -> None:
    mine = alone(Numbers(SAMPLES, fields))
    with served(loader(Numbers(SAMPLES, fields))), feedline.attach("place") as feed:
        for _ in range(3):
            assert equal(list(feed), list(mine))
    assert len(in_place) == 150
    assert not in_place[0], "the first one tells what the ring is like"
    assert in_place.count(False) < 10
    assert all(in_place[50:])


@pytest.mark.parametrize("options", [{"lag": "history"}, {"ring": 40}, {"replay": True}])
def test_what_the_server_does_with_its_log_is_its_own_matter(
    in_place: list[bool], options: dict[str, Any]
) -> None:
    mine = alone(Numbers(SAMPLES, image))
    expected = [chain(mine) for _ in range(3)]
    if "replay" in options:
        expected = expected[:1] * 3
    with (
        served(loader(Numbers(SAMPLES, image)), wait_for=2, **options),
        feedline.attach("place") as one,
        feedline.attach("place", batch_size=11) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        read = [pool.submit(chains, feed, 3) for feed in (one, other)]
        assert [each.result() for each in read] == [expected, expected]
    assert any(in_place)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_may_be_killed_at_any_moment(in_place: list[bool], context: str) -> None:
    mine = alone(Numbers(SAMPLES, image))
    expected = [chain(mine) for _ in range(3)]
    chance, killed = random.Random(7), 0
    made = loader(Numbers(SAMPLES, image), multiprocessing_context=context)
    with served(made, ring=64), feedline.attach("place", batch_size=5) as feed:
        for epoch in range(3):
            got = []
            for batch in feed:
                got.append(kept(batch))
                if chance.random() < 0.1 and (there := workers()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(there), signal.SIGKILL)
                        killed += 1
            assert chain(got) == expected[epoch]
    assert killed > 5
    assert in_place.count(True) > 100


class Gate:
    """Samples that wait for a file, from a number on."""

    def __init__(self, folder: Path, first: int) -> None:
        """Keep where the file will be."""
        self.open, self.first, self.at = folder / "open", first, folder / "at"

    def __call__(self, number: int) -> Any:
        """Make a sample."""
        if number >= self.first:
            self.at.touch()
            eventually(self.open.exists)
        return image(number)


def test_a_ring_is_replaced_while_workers_are_in_the_middle_of_a_sample(
    in_place: list[bool], tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 120)
    expected = chain(DataLoader(Numbers(SAMPLES, image), 8))
    made = loader(Numbers(SAMPLES, gate), shuffle=False)
    with (
        served(made, ring=64, epochs=None, history=0.0) as server,
        feedline.attach("place") as small,
        feedline.attach("place", batch_size=150) as large,
        ThreadPoolExecutor(2) as pool,
    ):
        batches = iter(small)
        got = [kept(next(batches)) for _ in range(9)]
        eventually(gate.at.exists)
        filled, before = in_place.count(True), server.stats()["ring_bytes"]
        reading = pool.submit(chains, large, 3)
        eventually(lambda: server.stats()["ring_bytes"] > before)
        assert not gate.open.exists(), "the workers are still at their samples"
        gate.open.touch()
        assert chain([*got, *map(kept, batches)]) == expected
        assert chains(small, 2) == [expected, expected]
        assert reading.result()[1:] == [expected, expected]
    assert in_place.count(True) > filled + 100


def test_more_rings_than_are_in_reserve(in_place: list[bool]) -> None:
    expected = chain(DataLoader(Numbers(SAMPLES, image), 8))
    made = loader(Numbers(SAMPLES, image), shuffle=False)
    with served(made, ring=32, epochs=None), contextlib.ExitStack() as stack:
        for batch_size in range(40, 380, 17):
            feed = stack.enter_context(feedline.attach("place", batch_size=batch_size))
            assert chain(feed) == expected
        assert any(in_place), "there was a ring in reserve"
        assert not any(in_place[-5:]), "there is none any more"


def test_an_epoch_that_everybody_leaves_is_made_no_further(
    in_place: list[bool], tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 200)
    expected = chain(DataLoader(Numbers(SAMPLES, image), 8))
    made = loader(Numbers(SAMPLES, gate), shuffle=False)
    with served(made, ring=64, epochs=None) as server:
        with feedline.attach("place") as feed:
            batches = iter(feed)
            for _ in range(24):
                next(batches)
            eventually(gate.at.exists)
        with feedline.attach("place") as feed:
            eventually(lambda: len(server.stats()["consumers"]) == 1)
            gate.open.touch()
            assert chain(feed) == expected
            assert chain(feed) == expected
    assert any(in_place)


def odd(number: int) -> Any:
    """Return a sample that now and then has no place in the lanes, though its batch has."""
    if number % 31 == 30:
        return number, np.float64(number) / 7
    return number, number / 7


def test_samples_that_do_not_fit_their_lanes_are_copied(in_place: list[bool]) -> None:
    mine = alone(Numbers(SAMPLES, odd))
    with served(loader(Numbers(SAMPLES, odd))), feedline.attach("place") as feed:
        for _ in range(3):
            assert equal(list(feed), list(mine))
    assert 12 * 3 <= in_place.count(False) < 100


class Fewer(Subset[Any]):
    """Makes many at once, and leaves some out."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        """Leave out every 50th where all of a batch are asked for."""
        return [image(number) for number in numbers if number % 50 != 49]


def test_a_batch_with_fewer_samples_than_keys_has_another_place(in_place: list[bool]) -> None:
    dataset = Fewer(Numbers(SAMPLES), range(SAMPLES))
    mine = alone(dataset)
    expected = [list(mine) for _ in range(3)]
    assert {len(batch[1]) for batch in expected[0]} > {8}
    with served(loader(dataset)), feedline.attach("place", batch_size=None) as feed:
        for epoch in range(3):
            got = [kept(batch) for batch in feed]
            assert chain(got) == chain(expected[epoch])
    assert in_place.count(True) > 20


def test_what_the_dataset_raises_ends_the_feed() -> None:
    def make(number: int) -> Any:
        if number == 150:
            raise KeyError("one hundred and fifty")
        return image(number)

    made = loader(Numbers(SAMPLES, make), shuffle=False)
    got: list[Any] = []
    error = pytest.raises(feedline.LoaderError, match="one hundred and fifty")
    with error, served(made), feedline.attach("place", batch_size=8) as feed:
        got.extend(map(kept, feed))
    assert numbers(batch[1:] for batch in got) == list(range(144))


@pytest.mark.parametrize("arguments", [{"in_order": False}, {"collate_fn": torch.tensor}])
def test_what_cannot_be_filled_in_place_is_copied(
    in_place: list[bool], arguments: dict[str, Any]
) -> None:
    made = loader(Numbers(SAMPLES), **arguments)
    with served(made, epochs=1), feedline.attach("place") as feed:
        assert len(list(feed)) == SAMPLES // 8
    assert not any(in_place)


def test_rings_in_files_are_copied_to(in_place: list[bool], tmp_path: Path) -> None:
    expected = chain(alone(Numbers(SAMPLES, image)))
    made = loader(Numbers(SAMPLES, image))
    with served(made, epochs=1, history_dir=str(tmp_path)), feedline.attach("place") as feed:
        assert chain(feed) == expected
    assert not any(in_place)


def test_under_skip_what_a_slow_job_gets_is_whole(in_place: list[bool]) -> None:
    with (
        served(loader(Numbers(SAMPLES, image)), ring=64, lag="skip", epochs=None),
        feedline.attach("place") as quick,
        feedline.attach("place", batch_size=5) as slow,
    ):
        batches = iter(slow)
        for _ in range(4):
            for _, _ in zip(range(SAMPLES // 8), quick, strict=False):
                pass
            pictures, labels, _ = next(batches, None) or next(batches := iter(slow))
            for picture, label in zip(pictures, labels, strict=True):
                assert (picture == int(label) % 251).all()
    assert any(in_place)


def test_ranks_share_what_stands_in_the_ring(in_place: list[bool]) -> None:
    with (
        served(loader(Numbers(SAMPLES, image)), wait_for=2),
        feedline.attach("place", batch_size=8, shard=(0, 2)) as one,
        feedline.attach("place", batch_size=8, shard=(1, 2)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for _ in range(3):
            read = [
                pool.submit(lambda feed: [kept(b) for b in feed], each) for each in (one, other)
            ]
            parts = [each.result() for each in read]
            assert sorted(numbers(b[1:] for part in parts for b in part)) == list(range(SAMPLES))
    assert any(in_place)


def test_nothing_is_left_of_a_server_that_is_killed(folder: Path) -> None:
    made: Any = DataLoader(
        *(Numbers(SAMPLES, image), 8, True),
        **cast(Any, {"seed": 4, "num_workers": 2, "name": "place", "ring": 64, "linger_secs": 0.1}),
        reconnect_secs=60,
    )
    mine = alone(Numbers(SAMPLES, image))
    expected = [chain(mine) for _ in range(2)]
    with made as feed:
        batches = iter(feed)
        got = [kept(next(batches)) for _ in range(20)]
        server = feed.stats()["server_pid"]
        forkers = children_of(server)
        there = [server, *forkers, *(one for forker in forkers for one in children_of(forker))]
        assert len(there) >= 4
        os.kill(server, signal.SIGKILL)
        # Another one goes on where this one was.
        assert chain([*got, *map(kept, batches)]) == expected[0]
        assert feed.stats()["server_pid"] != server
        assert chains(feed, 1) == expected[1:]
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in there))
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))
