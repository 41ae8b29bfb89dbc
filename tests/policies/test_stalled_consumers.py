"""Consumers that stand still: the others wait for the stated time, once, and then go on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import feedline
from support.loaders import EPOCH, Numbered
from support.processes import joined
from support.reading import expected, read
from support.waiting import allow_to_go_wrong, best_of

pytestmark = pytest.mark.alone

STALL_SECS = 1.0


@pytest.mark.parametrize("taken", [1, None], ids=["in mid-epoch", "between two epochs"])
def test_epochs_much_shorter_than_the_ring(taken: int | None) -> None:
    """They never fill it, so it isn't the ring that says how far one may run ahead of another."""
    with (
        feedline.Server(Numbered(8, 4), "train", stall_timeout_secs=STALL_SECS) as server,
        feedline.attach("train", batch_size=4) as standing,
        feedline.attach("train", batch_size=4) as feed,
    ):
        iterator = iter(standing)
        first = read(iterator, limit=taken)
        if taken is None:
            assert next(iterator, None) is None
        begin = read(feed).keys[0] // EPOCH
        for epoch in range(begin + 1, begin + 150):
            assert read(feed) == expected(epoch, 8, 4)
        assert joined(server.stats()) == 1
        # Between two epochs nothing was lost by it; in the middle it must get an error.
        if taken is not None:
            with pytest.raises(feedline.StalledError):
                next(iterator)
        again = read(standing)
        assert again == expected(again.keys[0] // EPOCH, 8, 4)
        assert again.keys[0] // EPOCH > first.keys[0] // EPOCH


def test_a_feed_ends_though_one_has_not_asked_for_its_next_epoch() -> None:
    """It read one epoch of three and keeps its feed, as a script that validates for hours does."""
    with (
        feedline.Server(Numbered(8, 4), "train", epochs=3, stall_timeout_secs=0.5) as server,
        feedline.attach("train", batch_size=4) as resting,
        feedline.attach("train", batch_size=4) as feed,
    ):
        read(resting)
        while server.stats()["state"] == "running":
            try:
                read(feed)
            except feedline.FeedEndedError:
                break
        assert server.wait(60)
        assert server.stats()["state"] == "ended"


def test_several_stuck_in_mid_epoch_cost_one_stall_time() -> None:
    """Each has stood still for as long as the others: they are not waited for in turn."""
    # One after the other they would take five times the stall time.
    best_of(secs_beside_several_stuck_in_mid_epoch, below_secs=3 * STALL_SECS)


def secs_beside_several_stuck_in_mid_epoch() -> float:
    stuck_ones = 5
    with feedline.Server(
        Numbered(2000, 10), "train", ring=200, stall_timeout_secs=STALL_SECS
    ) as server:
        feeds = [feedline.attach("train", batch_size=10) for _ in range(stuck_ones)]
        iterators = [iter(feed) for feed in feeds]
        held = [next(iterator) for iterator in iterators]
        with feedline.attach("train", batch_size=7) as feed:
            begun = time.monotonic()
            assert read(feed) == expected(0, 2000, 7)
            took = time.monotonic() - begun
            assert joined(server.stats()) == 1
            for iterator in iterators:
                with pytest.raises(feedline.StalledError):
                    next(iterator)
            # What they hold has not changed.
            assert read(held).keys == list(range(10)) * stuck_ones
            assert read(held).exact
            assert read(feed) == expected(1, 2000, 7)
        for feed in feeds:
            feed.close()
    return took


def test_several_between_two_epochs_cost_one_rest() -> None:
    best_of(secs_beside_several_between_two_epochs, below_secs=3 * STALL_SECS)


def secs_beside_several_between_two_epochs() -> float:
    resting_ones = 5
    options: dict[str, Any] = {"wait_for": resting_ones + 1, "stall_timeout_secs": STALL_SECS}
    with (
        feedline.Server(Numbered(600, 10), "train", ring=60, **options),
        ThreadPoolExecutor(resting_ones) as pool,
        feedline.attach("train", batch_size=7) as feed,
    ):
        feeds = [feedline.attach("train", batch_size=10) for _ in range(resting_ones)]
        reading = [pool.submit(read, resting) for resting in feeds]
        assert read(feed) == expected(0, 600, 7)
        for one in reading:
            assert one.result() == expected(0, 600, 10)
        begun = time.monotonic()
        assert read(feed) == expected(1, 600, 7)
        took = time.monotonic() - begun
        for resting in feeds:
            resting.close()
    return took


def test_one_that_holds_up_nobody_is_left_alone() -> None:
    """It evaluates for longer than the stall time, and is the only one there."""
    with (
        feedline.Server(
            Numbered(2000, 10), "train", ring=200, history=0, stall_timeout_secs=0.3
        ) as server,
        feedline.attach("train", batch_size=10) as feed,
    ):
        generation = server.stats()["generation"]
        iterator = iter(feed)
        keys = []
        for _ in range(3):
            keys += read(iterator, limit=30).keys
            allow_to_go_wrong(0.8)
            assert joined(server.stats()) == 1
        assert keys + read(iterator).keys == list(range(2000))
        assert server.stats()["generation"] == generation
