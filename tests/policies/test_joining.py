"""Where consumers start: `wait_for`, late joiners, and a server without consumers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import pytest

import feedline
from conftest import Start
from support import roles
from support.loaders import EPOCH, Endless, Numbered
from support.processes import joined
from support.reading import expected, keys_of, read
from support.waiting import allow_to_go_wrong, eventually


def test_wait_for_holds_the_first_sample_back_until_enough_have_asked() -> None:
    with (
        feedline.Server(Numbered(1000, 10), "train", epochs=1, wait_for=2, ring=60),
        ThreadPoolExecutor(2) as pool,
    ):
        early, late = (feedline.attach("train", batch_size=7) for _ in range(2))
        begun = threading.Event()

        def read_early() -> object:
            iterator = iter(early)
            first = next(iterator)
            begun.set()
            return keys_of(first) + read(iterator).keys

        reading = pool.submit(read_early)
        # A chance to be wrong, not a pause to be right.
        assert not begun.wait(0.3)
        assert read(late) == expected(0, 1000, 7)
        assert reading.result() == list(range(1000))
        early.close()
        late.close()


def test_wait_for_counts_those_who_asked_not_those_who_attached() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=1, wait_for=2),
        ThreadPoolExecutor(1) as pool,
    ):
        idle, first, second = (feedline.attach("train", batch_size=7) for _ in range(3))
        reading = pool.submit(read, first)
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.3)
        assert read(second) == expected(0, 100, 7)
        assert reading.result() == expected(0, 100, 7)
        for feed in (idle, first, second):
            feed.close()


def test_with_nobody_joined_the_server_fills_the_ring_and_waits() -> None:
    loader = Numbered(100_000, 10)
    with feedline.Server(loader, "train", epochs=1, ring=60) as server:
        feed = feedline.attach("train", batch_size=7)
        capacity = server.stats()["ring_samples"]
        # It stops at the ring's end by itself.
        eventually(lambda: loader.samples_yielded >= capacity - loader.batch)
        allow_to_go_wrong(0.2)
        assert loader.samples_yielded <= capacity + 2 * loader.batch
        # Nothing ran through for nobody: the first to join gets the first sample.
        assert keys_of(next(iter(feed))) == list(range(7))
        feed.close()


def begun(feed: feedline.Feed, batches: int) -> Iterator[Any]:
    """An epoch of which so many batches were taken."""
    iterator = iter(feed)
    for _ in range(batches):
        next(iterator)
    return iterator


def test_auto_within_the_rings_reach_gets_the_whole_epoch() -> None:
    with feedline.Server(Numbered(200, 10), "train", epochs=2, ring=400):
        early = feedline.attach("train", batch_size=10)
        iterator = begun(early, batches=12)
        late = feedline.attach("train", batch_size=7)
        assert read(late) == expected(0, 200, 7)
        assert read(iterator).keys == list(range(120, 200))
        early.close()
        late.close()


def test_auto_past_the_rings_reach_gets_the_next_epoch_whole() -> None:
    with (
        feedline.Server(Numbered(5000, 10), "train", epochs=3, ring=60) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        early = feedline.attach("train", batch_size=10)
        iterator = begun(early, batches=300)
        late = feedline.attach("train", batch_size=7)
        reading = pool.submit(lambda: [read(late), read(late)])
        eventually(lambda: joined(server.stats()) == 2)
        # The early consumer doesn't notice.
        assert read(iterator).keys == list(range(3000, 5000))
        assert read(early) == expected(1, 5000, 10)
        assert read(early) == expected(2, 5000, 10)
        assert reading.result() == [expected(1, 5000, 7), expected(2, 5000, 7)]
        early.close()
        late.close()


def test_now_begins_at_the_newest_sample() -> None:
    with (
        feedline.Server(Numbered(5000, 10), "train", epochs=2, ring=60) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        early = feedline.attach("train", batch_size=10)
        iterator = begun(early, batches=300)
        late = feedline.attach("train", batch_size=7, join="now")
        reading = pool.submit(lambda: [read(late), read(late)])
        eventually(lambda: joined(server.stats()) == 2)
        assert read(iterator).keys == list(range(3000, 5000))
        assert read(early) == expected(1, 5000, 10)
        rest, whole = reading.result()
        begin = rest.keys[0]
        # Within what the ring may hold before the early one's cursor.
        assert 3000 <= begin <= 3000 + server.stats()["ring_samples"]
        assert rest == expected(0, 5000, 7, start=begin)
        assert whole == expected(1, 5000, 7)
        early.close()
        late.close()


@pytest.mark.parametrize("join", ["auto", "now"])
def test_a_late_process_does_not_disturb_the_one_that_was_there(start: Start, join: str) -> None:
    server = start(roles.serve, loader_args=[3000, 10], epochs=3, ring=60)
    server.expect("ready")
    feed = feedline.attach("train", batch_size=8)
    iterator = iter(feed)
    for _ in range(225):
        next(iterator)
    late = start(roles.consume, batch_size=9, join=join, epochs=2)
    late.expect("attached")
    eventually(lambda: joined(server.ask("stats")["stats"]) == 2)
    assert read(iterator).keys == list(range(1800, 3000))
    assert read(feed) == expected(1, 3000, 8)
    assert read(feed) == expected(2, 3000, 8)
    first = late.expect("epoch")
    second = late.expect("epoch")
    epoch, begin = divmod(first["keys"][0], EPOCH)
    if join == "auto":
        assert (epoch, begin) == (1, 0)
    else:
        assert epoch == 0
        assert begin >= 1800
    want = expected(epoch, 3000, 9, start=begin)
    assert (first["sizes"], first["keys"], first["exact"]) == (want.sizes, want.keys, True)
    want = expected(epoch + 1, 3000, 9)
    assert (second["sizes"], second["keys"], second["exact"]) == (want.sizes, want.keys, True)
    late.expect("done")
    feed.close()


def test_attach_waits_for_a_server_that_is_yet_to_start(start: Start) -> None:
    consumer = start(roles.consume, batch_size=7)
    with feedline.Server(Numbered(100, 10), "train", epochs=1) as server:
        consumer.expect("attached")
        assert consumer.expect("epoch")["keys"] == list(range(100))
        consumer.expect("done")
        server.wait()


def test_one_consumer_leaves_after_its_epoch_and_the_others_go_on() -> None:
    with (
        feedline.Server(Numbered(1000, 10), "train", epochs=3, wait_for=2, ring=60),
        ThreadPoolExecutor(1) as pool,
    ):
        leaving = feedline.attach("train", batch_size=7)
        staying = feedline.attach("train", batch_size=7)

        def read_once_and_leave() -> object:
            got = read(leaving)
            leaving.close()
            return got

        left = pool.submit(read_once_and_leave)
        for epoch in range(3):
            assert read(staying) == expected(epoch, 1000, 7)
        assert left.result() == expected(0, 1000, 7)
        staying.close()


@pytest.mark.parametrize(("join", "firsts"), [("auto", [0, 0, 0]), ("next", [0, 100, 200])])
def test_after_breaking_off(
    join: Literal["auto", "next"], firsts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    class Hundreds:
        epoch = 0

        def __iter__(self) -> Iterator[Any]:
            first, self.epoch = 100 * self.epoch, self.epoch + 1
            return iter([np.arange(first + start, first + start + 4) for start in range(0, 40, 4)])

    with (
        feedline.Server(Hundreds(), "train", samples=40, history=1.0),
        feedline.attach("train", batch_size=5, join=join) as feed,
    ):
        found = [[int(batch[0]) for batch in itertools.islice(feed, 2)] for _ in firsts]
        assert found == [[first, first + 5] for first in firsts]
        assert [int(batch[0]) % 100 for batch in feed] == list(range(0, 40, 5))
    assert ["from its start again" in caplog.text] == [join == "auto"]


def test_a_late_job_does_not_wait_for_an_endless_epoch(caplog: pytest.LogCaptureFixture) -> None:
    with (
        feedline.Server(Endless(10), "train", ring=100, history=0) as server,
        feedline.attach("train", batch_size=10) as early,
    ):
        reading = iter(early)
        read(reading, limit=30)
        late = feedline.attach("train", batch_size=10, timeout_secs=1)
        with pytest.raises(feedline.StalledError, match="waits for epoch 1") as error:
            next(iter(late))
        assert 'join="now"' in str(error.value)
        assert "samples=" in str(error.value)
        words = "waits for epoch 1 to begin; epoch 0 is at sample"
        told = [record for record in caplog.records if words in record.getMessage()]
        assert len(told) == 1
        # It has given its place back, and may begin now.
        eventually(lambda: joined(server.stats()) == 1)
        late.close()
        early.close()
        with feedline.attach("train", batch_size=10, join="now") as now:
            assert keys_of(next(iter(now)))[0] >= 300
