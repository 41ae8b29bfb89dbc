"""Scenario 12: a loader that changes its mind in the middle, or yields nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline

CHANGES: dict[str, tuple[Any, Any, list[str]]] = {
    "dtype": (
        {"image": np.zeros((8, 3), np.uint8), "y": np.zeros(8)},
        {"image": np.zeros((8, 3), np.float32), "y": np.zeros(8)},
        ["image", "uint8", "float32"],
    ),
    "shape": (
        {"image": np.zeros((8, 3, 5))},
        {"image": np.zeros((8, 3, 7))},
        ["image", "5", "7", "whole_batches=True"],
    ),
    "a field more": ({"x": np.zeros(8)}, {"x": np.zeros(8), "extra": np.zeros(8)}, ["extra"]),
    "a field less": ({"x": np.zeros(8), "gone": np.zeros(8)}, {"x": np.zeros(8)}, ["gone"]),
    "structure": ((np.zeros(8), np.ones(8)), {"x": np.zeros(8)}, ["structure", "x"]),
    "lengths apart": (
        {"x": np.zeros((8, 2)), "y": np.zeros(8)},
        {"x": np.zeros((8, 2)), "y": np.zeros(7)},
        ["y", "7", "8"],
    ),
}


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_a_change_of_schema_is_named(what: str) -> None:
    before, after, parts = CHANGES[what]
    begun = threading.Event()

    def batches() -> Iterator[Any]:
        yield from [before] * 3
        begun.wait()
        yield after

    server = feedline.Server(batches(), "train", epochs=1)
    server.start()
    feed = feedline.attach("train", batch_size=8)
    count = 0
    with pytest.raises(feedline.SchemaError) as seen:  # noqa: PT012 - what came before counts too
        for _ in feed:
            count += 1
            begun.set()
    assert count == 3
    with pytest.raises(feedline.SchemaError) as raised:
        server.wait()
    for error in (seen.value, raised.value):
        for part in parts:
            assert part in str(error)
    server.stop()
    feed.close()


def test_an_empty_loader_is_an_empty_epoch() -> None:
    with feedline.Server([], "train", epochs=2), feedline.attach("train") as feed:
        assert list(feed) == []
        assert list(feed) == []
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))


def test_an_empty_loader_at_a_batch_size() -> None:
    with (
        feedline.Server([], "train", epochs=1),
        feedline.attach("train", batch_size=16) as feed,
    ):
        assert list(feed) == []


def test_epochs_of_nothing_are_told_and_do_not_spin(caplog: pytest.LogCaptureFixture) -> None:
    class Nothing:
        iterated = 0

        def __iter__(self) -> Iterator[Any]:
            self.iterated += 1
            return iter(())

    loader = Nothing()
    with feedline.Server(loader, "train"), feedline.attach("train", batch_size=8) as feed:
        for _ in range(5):
            assert list(feed) == []
        # Without samples there is no ring to fill up; something else must hold the loop.
        assert loader.iterated < 1000
    assert any("nothing" in record.getMessage() for record in caplog.records)


def test_a_generator_is_one_epoch() -> None:
    with (
        feedline.Server(iter([np.zeros((8, 2))]), "train"),
        feedline.attach("train", batch_size=8) as feed,
    ):
        assert len(list(feed)) == 1
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))
    with pytest.raises(ValueError, match="once") as error:
        feedline.Server(iter([np.zeros((8, 2))]), "train", epochs=3)
    assert "epochs=3" in str(error.value)


def test_batches_of_zero_samples_add_nothing() -> None:
    empty, full = np.zeros((0, 3)), np.ones((4, 3))
    with (
        feedline.Server([empty, full, empty, empty, full], "train", epochs=1),
        feedline.attach("train", batch_size=3) as feed,
    ):
        assert [len(batch) for batch in feed] == [3, 3, 2]


def test_a_batch_that_contains_itself_is_refused() -> None:
    knot: list[Any] = [np.zeros(4)]
    knot.append(knot)
    server = feedline.Server([knot], "train", epochs=1)
    server.start()
    with pytest.raises((feedline.SchemaError, feedline.LoaderError)):
        server.wait()
    server.stop()
