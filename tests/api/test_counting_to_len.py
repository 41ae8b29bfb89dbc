"""A loop that counts to len(feed) has read the epoch, whether or not it asks for one more batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline

SAMPLES = 10


class Epochs:
    """Batches of 4, 4 and 2 samples, whose hundreds tell the epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        first, self.epoch = 100 * self.epoch, self.epoch + 1
        for start in range(0, SAMPLES, 4):
            yield np.arange(first + start, first + min(start + 4, SAMPLES))


class Lists(Epochs):
    """The same with a field that can't be cut, and a length."""

    def __iter__(self) -> Iterator[Any]:
        return ({"ids": batch, "text": "x" * len(batch)} for batch in super().__iter__())

    def __len__(self) -> int:
        return 3


def count_to_len(feed: feedline.Feed) -> list[int]:
    batches = iter(feed)
    found = list(itertools.islice(batches, len(feed)))
    return [int(i) for batch in found for i in (batch["ids"] if isinstance(batch, dict) else batch)]


@pytest.mark.parametrize("batch_size", [1, 3, 5, 10, 64, None])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_next_iteration_is_the_next_epoch(batch_size: int | None, drop_last: bool) -> None:
    with (
        feedline.Server(Epochs(), "train", samples=SAMPLES, history=1.0, epochs=4),
        feedline.attach("train", batch_size=batch_size, drop_last=drop_last) as feed,
    ):
        if batch_size is None:
            assert len(list(feed)) == len(feed)  # batches are counted once an epoch is over
        for epoch in range(feed.epoch, 4):
            expected = list(range(SAMPLES))
            if drop_last:
                size = batch_size or 4
                expected = expected[: SAMPLES // size * size]
            if expected:
                assert count_to_len(feed) == [100 * epoch + i for i in expected]


def test_of_whole_batches_too() -> None:
    with feedline.Server(Lists(), "train", history=1.0), feedline.attach("train") as feed:
        for epoch in range(3):
            assert count_to_len(feed) == [100 * epoch + i for i in range(SAMPLES)]


def test_an_iterator_that_is_kept_does_not_hold_the_next_epoch_back() -> None:
    kept = []
    with (
        feedline.Server(Epochs(), "train", samples=SAMPLES, history=1.0),
        feedline.attach("train", batch_size=3) as feed,
    ):
        for epoch in range(3):
            kept.append(iter(feed))
            found = [int(next(kept[-1])[0]) for _ in range(len(feed))]
            assert found == [100 * epoch + i for i in (0, 3, 6, 9)]
        assert [list(batches) for batches in kept] == [[], [], []]


def test_one_that_stops_a_batch_before_the_end_has_broken_off() -> None:
    with (
        feedline.Server(Epochs(), "train", samples=SAMPLES, history=1.0),
        feedline.attach("train", batch_size=3) as feed,
    ):
        assert [int(b[0]) for b in itertools.islice(feed, len(feed) - 1)] == [0, 3, 6]
        assert [int(b[0]) for b in feed] == [0, 3, 6, 9]


def test_the_epoch_is_that_of_the_batch_in_hand() -> None:
    with (
        feedline.Server(Epochs(), "train", samples=SAMPLES, epochs=2),
        feedline.attach("train", batch_size=5) as feed,
    ):
        for epoch in range(2):
            assert [(int(batch[0]), feed.epoch) for batch in feed] == [
                (100 * epoch, epoch),
                (100 * epoch + 5, epoch),
            ]


@pytest.mark.parametrize("asks_for_the_end", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_state_at_an_epochs_end_is_the_next_ones_beginning(
    asks_for_the_end: bool, is_old: bool
) -> None:
    with feedline.Server(Epochs(), "train", samples=SAMPLES, history=1.0):
        feed = feedline.attach("train", batch_size=4)
        batches = iter(feed)
        for _ in range(3):
            next(batches)
        if asks_for_the_end:
            assert next(batches, None) is None
        state = feed.state_dict()
        # Either way; which one depends on whether the loader is known to have no more.
        assert (state["epoch"], state["sample"]) in ((1, 0), (0, SAMPLES))
        if is_old:  # taken before the length was known
            state = {"feed": "train", "epoch": 0, "sample": SAMPLES}
        again = feedline.attach("train", batch_size=4)
        again.load_state_dict(state)
        assert [int(batch[0]) for batch in again] == [100, 104, 108]


class More(Epochs):
    """Yields a third batch that was not promised, when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(super().__iter__()):
            if number == 2:
                self.go_on.wait()
            yield batch


def test_a_loader_that_yields_more_than_it_promised_loses_only_that() -> None:
    """A loop that has counted to len gets the next epoch, and never the rest of the last one."""
    loader = More()
    with (
        feedline.Server(loader, "train", samples=8, history=1.0, epochs=3),
        feedline.attach("train", batch_size=4) as feed,
    ):
        assert [int(batch[0]) for batch in itertools.islice(feed, 2)] == [0, 4]
        loader.go_on.set()
        assert int(next(iter(feed))[0]) == 100


@pytest.mark.parametrize("batch_size", [5, None])
def test_a_feed_ends_when_those_who_count_to_len_have_had_all(batch_size: int | None) -> None:
    with feedline.Server(Epochs(), "train", samples=SAMPLES, epochs=2) as server:
        feed = feedline.attach("train", batch_size=batch_size)
        for _ in range(2):
            batches = iter(feed)
            for _ in range(len(feed) if batch_size else 3):
                next(batches)
        del batches
        assert server.wait(30.0)


class Uneven:
    """Epochs of 12, 20, 8 and 16 samples, unannounced."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        for start in range(0, (12, 20, 8, 16)[epoch % 4], 4):
            yield np.arange(start, start + 4) + 100 * epoch


def test_a_state_in_an_epoch_longer_than_the_last_is_a_place_in_it() -> None:
    with (
        feedline.Server(Uneven(), "train", epochs=4, ring=8),
        feedline.attach("train", batch_size=4) as feed,
    ):
        for epoch, samples in enumerate((12, 20, 8, 16)):
            for batch in feed:
                state = feed.state_dict()
                sample = int(batch[-1]) - 100 * epoch + 1
                places = [(epoch, sample)] + [(epoch + 1, 0)] * (sample == samples)
                assert (state["epoch"], state["sample"]) in places


def test_whole_batches_from_a_saved_place_to_len() -> None:
    with feedline.Server(Lists(), "train", history=1.0):
        feed = feedline.attach("train")
        feed.load_state_dict({"feed": "train", "epoch": 0, "sample": 1})
        assert [len(batch["ids"]) for batch in itertools.islice(feed, 2)] == [4, 2]
        assert count_to_len(feed) == [100 + i for i in range(SAMPLES)]
