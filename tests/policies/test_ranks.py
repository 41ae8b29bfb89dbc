"""Ranks share an epoch: each sample once, the same number of batches for all, none empty."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline._shard import resolve_shard
from support.loaders import EPOCH, Endless, Numbered, torch_loader
from support.ranks import shares, steps_of
from support.reading import Reading, expected, read


def attach_all(world: int, **options: Any) -> list[feedline.Feed]:
    return [feedline.attach("train", shard=(rank, world), **options) for rank in range(world)]


def read_all(feeds: list[feedline.Feed], pool: ThreadPoolExecutor) -> list[Reading]:
    return [job.result() for job in [pool.submit(read, feed) for feed in feeds]]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    ("samples", "source", "batch_size", "world"),
    [
        (650, 16, 7, 3),  # an uneven last step
        (650, 16, 81, 4),  # two too few for four: they join the step before
        (650, 650, 65, 2),  # nothing is left over
        (97, 5, 1, 8),  # a step of one each, and one more for the first
        (100, 7, 200, 3),  # less than a step
        (650, 16, 1, 2),
    ],
)
def test_ranks_share_every_epoch_and_others_see_all(
    samples: int,
    source: int,
    batch_size: int,
    world: int,
    drop_last: bool,
    pool: ThreadPoolExecutor,
) -> None:
    steps = steps_of(samples, batch_size, world, drop_last=drop_last)
    with feedline.Server(Numbered(samples, source), "train", epochs=2, wait_for=world + 1):
        ranks = attach_all(world, batch_size=batch_size, drop_last=drop_last)
        other = feedline.attach("train", batch_size=50)
        for epoch in range(2):
            others = pool.submit(read, other)
            assert read_all(ranks, pool) == shares(epoch, steps, world)
            assert others.result() == expected(epoch, samples, 50)
            assert [len(feed) for feed in ranks] == [len(steps)] * world


def test_any_numbers_go_together(pool: ThreadPoolExecutor) -> None:
    random = np.random.default_rng(20261116)
    for _ in range(40):
        world = int(random.integers(2, 7))
        samples = int(random.integers(world, 300))
        source, batch_size = (int(number) for number in random.integers(1, 40, 2))
        epochs = [samples, int(random.integers(world, 300))]
        with feedline.Server(Numbered(epochs, source), "train", epochs=2, ring=2 * source):
            ranks = attach_all(world, batch_size=batch_size)
            for epoch, length in enumerate(epochs):
                got = read_all(ranks, pool)
                steps = steps_of(length, batch_size, world)
                assert got == shares(epoch, steps, world), (samples, source, batch_size, world)


@pytest.mark.parametrize(
    ("samples", "source", "world", "steps"),
    [
        (650, 16, 3, [16] * 40 + [10]),
        (642, 16, 3, [16] * 39 + [18]),  # a last batch of two joins the one before it
        (96, 4, 8, [8] * 12),  # batches too small for eight ranks go together
        (101, 4, 6, [8] * 11 + [13]),
        (103, 4, 6, [8] * 12 + [7]),
    ],
)
def test_own_batches_are_split(
    samples: int, source: int, world: int, steps: list[int], pool: ThreadPoolExecutor
) -> None:
    with feedline.Server(torch_loader(samples, source), "train", epochs=2, ring=2 * source):
        ranks = attach_all(world)
        assert [len(feed) for feed in ranks] == [len(steps)] * world, "known beforehand"
        for epoch in range(2):
            got = read_all(ranks, pool)
            assert [reading.sizes for reading in got] == [
                reading.sizes for reading in shares(epoch, steps, world)
            ]
            assert all(reading.exact for reading in got)
            keys = sorted(itertools.chain(*(reading.keys for reading in got)))
            assert [key % EPOCH for key in keys] == list(range(samples))
            assert [len(feed) for feed in ranks] == [len(steps)] * world


def test_own_batches_without_an_incomplete_last(pool: ThreadPoolExecutor) -> None:
    with feedline.Server(Numbered(650, 16), "train", epochs=1):
        ranks = attach_all(3, drop_last=True)
        assert read_all(ranks, pool) == shares(0, [16] * 40, 3)
        assert [len(feed) for feed in ranks] == [40] * 3


class Odd(Numbered):
    """Batches of many sizes, some of them smaller than a job has ranks."""

    sizes = (9, 1, 30, 2, 2, 2, 100, 1, 5, 40, 3)

    def _epoch(self, epoch: int) -> Iterator[Any]:
        keys = np.arange(sum(self.sizes), dtype=np.int64) + epoch * EPOCH
        for last, size in zip(itertools.accumulate(self.sizes), self.sizes, strict=True):
            part = keys[last - size : last]
            yield np.zeros((size, 1), np.uint8), part


def test_own_batches_of_many_sizes(pool: ThreadPoolExecutor) -> None:
    steps = [9, 1 + 30, 2 + 2, 2 + 100, 1 + 5, 40, 3]
    with feedline.Server(Odd(0, 1), "train", epochs=2, ring=120):
        ranks = attach_all(3)
        for epoch in range(2):
            got = read_all(ranks, pool)
            wanted = shares(epoch, steps, 3)
            assert [(one.sizes, one.keys) for one in got] == [
                (one.sizes, one.keys) for one in wanted
            ]
            assert [len(feed) for feed in ranks] == [len(steps)] * 3


class Ragged:
    """Batches that can't be cut, of about 400 kB."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.epoch = -1

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        for number in range(self.batches):
            yield {"text": f"{self.epoch}:{number}", "x": np.full(100_000 + number, number, "f4")}


def texts(feed: feedline.Feed) -> list[str]:
    got = []
    for batch in feed:
        assert (batch["x"] == int(batch["text"].split(":")[1])).all()
        got.append(batch["text"])
    return got


@pytest.mark.parametrize("world", [2, 12])
def test_whole_batches_go_round(
    world: int, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    # Twelve at once are far more than such a ring holds.
    with feedline.Server(Ragged(27), "train", epochs=2, ring="2MB"):
        ranks = attach_all(world)
        each = 27 // world
        for epoch in range(2):
            jobs = [pool.submit(texts, feed) for feed in ranks]
            for rank, job in enumerate(jobs):
                assert job.result() == [f"{epoch}:{step * world + rank}" for step in range(each)]
            assert [len(feed) for feed in ranks] == [each] * world
            left_out = (epoch + 1) * (27 % world)
            assert [feed.stats()["left_out"] for feed in ranks] == [left_out] * world
        warnings = [
            record
            for record in caplog.records
            if record.levelno == logging.WARNING and f"for {world} ranks" in record.message
        ]
        assert len(warnings) == world, "once each"


@pytest.mark.parametrize("whole", [False, True])
def test_an_epoch_with_too_little_for_everybody(whole: bool, pool: ThreadPoolExecutor) -> None:
    with feedline.Server(Numbered(3, 1), "train", whole_batches=whole):
        for feed in attach_all(4):
            with pytest.raises(feedline.BatchSizeError, match=r"4 ranks(.|\n)*use fewer ranks"):
                next(iter(feed))
            feed.close()
        ranks = attach_all(4, drop_last=True)
        assert [reading.sizes for reading in read_all(ranks, pool)] == [[]] * 4


def test_an_empty_epoch_is_empty(pool: ThreadPoolExecutor) -> None:
    with feedline.Server(Numbered([0, 40], 10), "train", epochs=2):
        ranks = attach_all(2, batch_size=5)
        assert [reading.sizes for reading in read_all(ranks, pool)] == [[], []]
        assert read_all(ranks, pool) == shares(1, [10] * 4, 2)


def test_a_stream_without_end() -> None:
    with feedline.Server(Endless(10), "train", ring=60):
        one, two = (iter(feed) for feed in attach_all(2, batch_size=4))
        for step in range(50):
            for rank, feed in enumerate((one, two)):
                keys = next(feed)[1].tolist()
                assert keys == list(range(step * 8 + rank * 4, step * 8 + rank * 4 + 4))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [5, None])
def test_a_rank_that_stops_after_the_last_batch_has_finished_the_epoch(
    batch_size: int | None, drop_last: bool, pool: ThreadPoolExecutor
) -> None:
    """As frameworks do that count: all ranks then go on with the next epoch, none with this."""
    steps = [15] * 7 if batch_size else [10] * 10 + [7]
    if batch_size and not drop_last:
        steps[-1] += 2
    elif not batch_size and drop_last:
        steps.pop()
    with feedline.Server(Numbered(107, 10), "train", ring=60):
        ranks = attach_all(3, batch_size=batch_size, drop_last=drop_last)
        for epoch in range(4):
            jobs = [pool.submit(read, feed, limit=len(steps)) for feed in ranks]
            assert [job.result() for job in jobs] == shares(epoch, steps, 3)
            states = [feed.state_dict() for feed in ranks]
            assert [(state["epoch"], state["sample"]) for state in states] == [(epoch + 1, 0)] * 3


def test_a_replayed_epoch(pool: ThreadPoolExecutor) -> None:
    with feedline.Server(Numbered(101, 10), "train", epochs=3, replay=True):
        ranks = attach_all(4, batch_size=5)
        for _ in range(3):
            assert read_all(ranks, pool) == shares(0, [20] * 4 + [21], 4)


def test_a_saved_place_is_a_step(pool: ThreadPoolExecutor) -> None:
    with feedline.Server(Numbered(100, 10), "train"):
        ranks = attach_all(3, batch_size=5)
        iterators = [iter(feed) for feed in ranks]
        for iterator, _ in itertools.product(iterators, range(4)):
            next(iterator)
        states = [feed.state_dict() for feed in ranks]
        assert [(state["epoch"], state["sample"]) for state in states] == [(0, 60)] * 3
        del iterators, iterator
        again = attach_all(3, batch_size=5)
        for feed in again:
            feed.load_state_dict(states[0])
        assert read_all(again, pool) == shares(0, [15, 15, 10], 3, start=60)


def test_a_job_of_one_is_an_ordinary_consumer() -> None:
    with feedline.Server(Numbered(50, 10), "train", epochs=1):
        assert read(feedline.attach("train", batch_size=7, shard=(0, 1))) == expected(0, 50, 7)


def test_where_samples_are_skipped_ranks_are_refused() -> None:
    with (
        feedline.Server(Numbered(50, 10), "train", lag="skip"),
        pytest.raises(feedline.FeedValueError, match=r'lag="skip"(.|\n)*without shard'),
    ):
        feedline.attach("train", shard=(0, 2))


def test_the_newest_sample_is_no_place_for_ranks() -> None:
    with pytest.raises(feedline.FeedValueError, match=r"join(.|\n)*shard"):
        feedline.attach("train", shard=(0, 2), join="now")


@pytest.mark.parametrize(
    "shard", [(2, 2), (-1, 2), (0, 0), (0, -1), (0.0, 2), ("0", "2"), (True, 2), (0,), 3, (0, 1, 2)]
)
def test_ranks_that_cannot_be(shard: Any) -> None:
    with pytest.raises(feedline.FeedValueError, match="shard="):
        feedline.attach("train", shard=shard)


@pytest.mark.parametrize(
    ("rank", "world"), [("0", None), (None, "2"), ("0", "two"), ("2", "2"), ("", ""), ("0", "0")]
)
def test_an_environment_that_makes_no_sense(
    rank: str | None, world: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(feedline.FeedValueError, match="RANK"):
        feedline.attach("train", shard="auto")
    with pytest.raises(feedline.FeedValueError, match="auto"):
        feedline.attach("train", shard="all")  # type: ignore[arg-type]


def test_a_process_group_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch import distributed

    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.delenv("RANK", raising=False)
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=store)
    try:
        assert resolve_shard("auto") is None, "a job of one"
    finally:
        distributed.destroy_process_group()
    with pytest.raises(feedline.FeedValueError, match="RANK is not"):
        resolve_shard("auto")


def test_ranks_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert resolve_shard("auto") is None
    assert resolve_shard((np.int64(1), 2)) == (1, 2, 0)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert resolve_shard("auto") == (3, 4, 0)
    monkeypatch.setenv("MASTER_PORT", "29500")
    one = resolve_shard("auto")
    monkeypatch.setenv("MASTER_PORT", "29501")
    other = resolve_shard("auto")
    assert one is not None
    assert other is not None
    assert 0 != one[2] != other[2] != 0


def test_a_job_on_several_machines_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in (("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(key, value)
    with pytest.raises(feedline.FeedValueError, match="4 ranks, 2 of them on this machine"):
        resolve_shard("auto")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert resolve_shard("auto") == (1, 4, 0)
