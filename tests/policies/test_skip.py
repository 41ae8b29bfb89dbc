"""`lag="skip"`: the fast go on, the slow lose samples, and every one of those is counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import feedline
from support.loaders import EPOCH, Numbered, Sized
from support.reading import expected, is_exact, keys_of, read
from support.waiting import eventually


@pytest.mark.parametrize("whole_batches", [False, True])
def test_a_slow_one_loses_what_it_must_and_knows_how_much(
    whole_batches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    samples = 6000
    with (
        feedline.Server(
            Sized(samples, 20),
            "train",
            ring=10 if whole_batches else 200,
            history=0,
            lag="skip",
            wait_for=2,
            whole_batches=whole_batches,
        ) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train") as fast,
        feedline.attach("train") as slow,
    ):
        fast_keys: list[int] = []

        def read_fast() -> None:
            for batch in fast:
                assert is_exact(batch)
                fast_keys.extend(keys_of(batch))

        reading = pool.submit(read_fast)
        keys: list[int] = []
        for batch in slow:
            assert is_exact(batch)
            keys += keys_of(batch)
            # A step in which the other takes thirty batches: it is slow at any speed.
            goal = min(len(fast_keys) + 600, samples)
            eventually(lambda: reading.done() or len(fast_keys) >= goal)  # noqa: B023
        reading.result()
        assert fast_keys == list(range(samples)), "the fastest loses nothing"
        assert len(keys) < samples / 2
        assert keys == sorted(set(keys)), "in order, none twice"
        unit = 20 if whole_batches else 1
        assert len(keys) + slow.stats()["skipped"] * unit == samples
        assert fast.stats()["skipped"] == 0
        by_pid = sorted(consumer["skipped"] for consumer in server.stats()["consumers"])
        assert by_pid == [0, slow.stats()["skipped"]]
    assert any("skips samples" in record.getMessage() for record in caplog.records)


def test_batches_keep_their_size_and_are_never_torn() -> None:
    with (
        feedline.Server(
            Numbered(100_000, 50, width=4000), "train", ring=200, history=0, lag="skip", wait_for=2
        ),
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=64) as fast,
        feedline.attach("train", batch_size=48) as slow,
    ):
        reading = pool.submit(lambda: sum(len(batch[1]) for batch in fast))
        sizes = []
        seen = 0
        for batch in slow:
            assert is_exact(batch)
            sizes.append(len(batch[1]))
            seen += len(batch[1])
        assert set(sizes[:-1]) == {48}
        assert seen + slow.stats()["skipped"] == 100_000
        assert reading.result() + fast.stats()["skipped"] == 100_000


def fall_behind(slow: feedline.Feed, fast: feedline.Feed, samples: int, batch: int) -> list[int]:
    """One consumer takes a batch, and the other one reads 100 epochs. Returns the batch's keys."""
    standing = iter(slow)
    first = keys_of(next(standing))
    begin = first[0] // EPOCH
    for epoch in range(begin, begin + 100):
        assert read(fast) == expected(epoch, samples, batch)
    # The slow consumer's epoch is over; the rest of it is counted as far as its end is known.
    assert read(standing).keys == []
    return first


def test_a_consumer_that_stands_still_for_epochs_goes_on_in_the_current_one() -> None:
    with (
        feedline.Server(Numbered(40, 10), "train", ring=60, history=0, lag="skip") as server,
        feedline.attach("train", batch_size=10) as fast,
        feedline.attach("train", batch_size=10) as slow,
    ):
        first = fall_behind(slow, fast, 40, 10)
        begin = first[0] // EPOCH
        again = read(slow)
        assert again.exact
        assert again.keys[0] // EPOCH >= begin + 98
        assert server.stats()["state"] == "running"


def test_alone_nobody_loses_anything() -> None:
    with (
        feedline.Server(Numbered(3000, 30), "train", ring=150, lag="skip"),
        feedline.attach("train", batch_size=7) as feed,
    ):
        for epoch in range(3):
            assert read(feed) == expected(epoch, 3000, 7)
        assert feed.stats()["skipped"] == 0
        assert feed.stats()["mode"] == "copy"


def test_what_was_taken_is_ones_own() -> None:
    with (
        feedline.Server(Numbered(3000, 30), "train", ring=150, lag="skip"),
        feedline.attach("train", batch_size=30) as feed,
    ):
        kept = list(feed)
        for batch in kept:
            batch[0][:] = 0
        assert all(np.all(np.asarray(batch[0]) == 0) for batch in kept)
        assert read(feed) == expected(1, 3000, 30)


@pytest.mark.parametrize(("ring", "batch_size"), [(200, 60), (200, 90), (200, 101), (250, 99)])
def test_batches_that_do_not_divide_each_other(ring: int, batch_size: int) -> None:
    """What is left for the slow must not be what the fastest needs to go on."""
    with (
        feedline.Server(Sized(1000, 100), "train", samples=1000, ring=ring, lag="skip", history=0),
        feedline.attach("train", batch_size=batch_size) as feed,
    ):
        for epoch in range(3):
            assert read(feed) == expected(epoch, 1000, batch_size)


def test_epochs_much_shorter_than_the_ring() -> None:
    """Their ends are forgotten long before their samples are overwritten."""
    with (
        feedline.Server(Sized(8, 8), "train", samples=8, ring=8192, lag="skip") as server,
        feedline.attach("train", batch_size=4) as fast,
        feedline.attach("train", batch_size=4) as slow,
    ):
        first = fall_behind(slow, fast, 8, 4)
        begin = first[0] // EPOCH
        again = read(slow)
        assert len({key // EPOCH for key in again.keys}) == 1
        assert again.keys[0] // EPOCH >= begin + 30
        taken = len(first) + len(again.keys)
        ended = again.keys[-1] // EPOCH - begin + 1
        # What is left of an epoch whose end is forgotten is counted with the next.
        assert 8 * (ended - 1) <= taken + slow.stats()["skipped"] <= 8 * ended
        assert server.stats()["state"] == "running"


def test_a_newcomer_does_not_wait_for_one_that_stands_still() -> None:
    """It is the only one that reads, so the log waits for it: as long as for anybody."""
    with (
        feedline.Server(
            Sized(1000, 10), "train", samples=1000, ring=100, lag="skip", stall_timeout_secs=0.5
        ),
        feedline.attach("train", batch_size=10) as standing,
        feedline.attach("train", batch_size=10) as newcomer,
    ):
        iterator = iter(standing)
        read(iterator, limit=30)
        assert read(newcomer) == expected(1, 1000, 10)
