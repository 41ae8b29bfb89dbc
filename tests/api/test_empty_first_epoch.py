"""An empty first epoch: a consumer that attached then learns the schema with its first batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import feedline


class Late:
    """Nothing at first; from the second epoch on these batches, once the gate is open."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.gate = threading.Event()
        self.epochs_begun = 0

    def __iter__(self) -> Iterator[Any]:
        self.epochs_begun += 1
        return self._later() if self.epochs_begun > 1 else iter(())

    def _later(self) -> Iterator[Any]:
        self.gate.wait()
        yield from self.batches


CUT = [np.full((4, 1), number) for number in range(16)]
WHOLE = [(np.full((4, 1), number), f"s{number}") for number in range(16)]


def test_it_turns_out_to_travel_whole_and_a_batch_size_was_asked_for() -> None:
    """An error, as for anybody who attaches afterwards: not a batch here and there."""
    loader = Late(WHOLE)
    with (
        feedline.Server(loader, "train", epochs=2, wait_for=2),
        feedline.attach("train", batch_size=8) as feed,
        feedline.attach("train") as own,
        ThreadPoolExecutor() as both,
    ):
        assert list(both.map(list, [feed, own])) == [[], []]
        loader.gate.set()
        with pytest.raises(feedline.BatchSizeError, match="batch_size=None"):
            list(feed)
        assert [name for _, name in own] == [f"s{number}" for number in range(16)]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(("batch_size", "full"), [(None, 16), (8, 8), (3, 21), (5, 12), (100, 0)])
def test_it_turns_out_to_be_cut(batch_size: int | None, full: int, drop_last: bool) -> None:
    loader = Late(CUT)
    size = batch_size or 4
    want = [size] * full
    if full * size < 64 and not drop_last:
        want.append(64 - full * size)
    with (
        feedline.Server(loader, "train", epochs=3),
        feedline.attach("train", batch_size=batch_size, drop_last=drop_last) as feed,
    ):
        assert list(feed) == []
        loader.gate.set()
        got = list(feed)
        assert [len(batch) for batch in got] == want
        assert [int(row[0]) for batch in got for row in batch] == [
            number // 4 for number in range(sum(want))
        ]
        assert len(feed) == len(want)
        assert [len(batch) for batch in feed] == want


def test_the_length_of_whole_batches() -> None:
    loader = Late(WHOLE)
    with feedline.Server(loader, "train", epochs=3), feedline.attach("train") as feed:
        assert list(feed) == []
        loader.gate.set()
        assert len(list(feed)) == 16
        assert len(feed) == 16
        assert len(list(feed)) == 16
