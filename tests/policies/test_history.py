"""What is kept behind the ring: late joiners get whole epochs, slow ones hold up nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.loaders import EPOCH, Numbered, Sized, torch_loader
from support.processes import joined
from support.reading import expected, read
from support.waiting import allow_to_go_wrong, eventually

SAMPLES = 3000


def take(batches: Iterator[Any], samples: int, batch_size: int) -> list[int]:
    return read(batches, limit=samples // batch_size).keys


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("whole_batches", [False, True])
@pytest.mark.parametrize("share", [0.01, 0.6, 0.97])
def test_with_the_whole_epoch_kept_a_late_joiner_sees_all_of_it(
    share: float, whole_batches: bool, in_files: bool, tmp_path: Path
) -> None:
    size = None if whole_batches else 30
    with (
        feedline.Server(
            Sized(SAMPLES, 30),
            "train",
            ring=150 if not whole_batches else 5,
            history=1.0,
            samples=None if whole_batches else SAMPLES,
            history_dir=tmp_path if in_files else None,
            whole_batches=whole_batches,
        ) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=size) as early,
        feedline.attach("train", batch_size=size) as late,
    ):
        first = iter(early)
        keys = take(first, int(SAMPLES * share), 30)
        second = iter(late)
        late_keys = take(second, 30, 30)
        assert late_keys[0] == 0
        if share < 0.1:
            # They began nearly together: neither may be further behind the other than the ring.
            reading = pool.submit(read, second)
            keys += read(first).keys
            rest = reading.result()
        else:
            # The early one goes on, all through the epoch, while the late one stands.
            keys += read(first).keys
            rest = read(second)
        assert keys == list(range(SAMPLES))
        assert late_keys + rest.keys == list(range(SAMPLES))
        assert rest.exact
        assert server.stats()["history_samples"] >= (100 if whole_batches else SAMPLES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("share", "epoch"), [(0.01, 0), (0.6, 1)])
def test_with_little_history_a_late_joiner_waits_for_the_next_epoch(
    share: float, epoch: int
) -> None:
    loader = Sized(SAMPLES, 30)
    with (
        feedline.Server(loader, "train", ring=150, samples=SAMPLES, history=0.02) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=30) as early,
        feedline.attach("train", batch_size=7) as late,
    ):
        first = iter(early)
        take(first, int(SAMPLES * share), 30)
        reading = pool.submit(read, late)
        eventually(lambda: joined(server.stats()) == 2)
        assert read(first).exact
        if epoch == 1:
            assert read(early) == expected(1, SAMPLES, 30)
        assert reading.result() == expected(epoch, SAMPLES, 7)


def test_one_that_joins_now_begins_at_the_newest_sample() -> None:
    with (
        feedline.Server(
            Sized(SAMPLES, 30), "train", ring=150, samples=SAMPLES, history=1.0
        ) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=30) as early,
        feedline.attach("train", batch_size=30, join="now") as late,
    ):
        first = iter(early)
        take(first, 1500, 30)
        reading = pool.submit(read, late)
        eventually(lambda: joined(server.stats()) == 2)
        assert read(first).keys[-1] == SAMPLES - 1
        newest = reading.result().keys
        assert 1500 <= newest[0] <= 1680
        assert newest == list(range(newest[0], SAMPLES))


def test_history_is_kept_once_an_epoch_has_told_how_long_it_is() -> None:
    with (
        feedline.Server(Numbered(SAMPLES, 30), "train", ring=150, history=1.0) as server,
        feedline.attach("train", batch_size=30) as early,
        feedline.attach("train", batch_size=30) as late,
    ):
        assert read(early) == expected(0, SAMPLES, 30)
        first = iter(early)
        keys = take(first, 1800, 30)
        assert server.stats()["history_samples"] >= SAMPLES
        reading = iter(late)
        assert take(reading, 30, 30)[0] == EPOCH
        assert keys + read(first).keys == expected(1, SAMPLES, 30).keys
        assert read(reading).keys[-1] == EPOCH + SAMPLES - 1


def server_for_two(history: Any, lag: Any) -> feedline.Server:
    return feedline.Server(
        Sized(SAMPLES, 30),
        "train",
        samples=SAMPLES,
        ring=150,
        history=history,
        lag=lag,
        wait_for=2,
    )


def test_with_lag_history_a_slow_one_does_not_slow_a_fast_one() -> None:
    with (
        server_for_two(1.0, "history") as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=30) as fast,
        feedline.attach("train", batch_size=30) as slow,
    ):
        slow_reading = iter(slow)
        first = pool.submit(next, slow_reading)
        # The slow one has one batch, and doesn't move at all while the other reads an epoch.
        assert read(fast) == expected(0, SAMPLES, 30)
        assert [int(key) for key in first.result()[1]] == list(range(30))
        rest = read(slow_reading)
        assert rest.keys == list(range(30, SAMPLES))
        assert rest.exact
        assert server.stats()["history_bytes"] < 2 * SAMPLES * (37 + 8 + 4) + (1 << 20)


def test_with_lag_history_a_late_joiner_sees_the_whole_epoch_too() -> None:
    """The loader runs ahead of the fastest by the ring, not by the history."""
    with (
        feedline.Server(
            Sized(SAMPLES, 30), "train", samples=SAMPLES, ring=150, history=1.0, lag="history"
        ),
        feedline.attach("train", batch_size=30) as early,
        feedline.attach("train", batch_size=30) as late,
    ):
        take(iter(early), 1800, 30)
        assert read(late) == expected(0, SAMPLES, 30)


@pytest.mark.parametrize(
    ("lag", "history", "reaches"), [("history", 0.3, 1000), ("block", 1.0, 150)]
)
def test_the_fast_one_waits_when_the_limit_is_reached(
    lag: Any, history: float, reaches: int
) -> None:
    """With "history" the history is the limit, with "block" the ring, whatever the history."""
    with (
        server_for_two(history, lag) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=30) as fast,
        feedline.attach("train", batch_size=30) as slow,
    ):
        slow_reading = iter(slow)
        first = pool.submit(next, slow_reading)
        reading = pool.submit(read, fast)
        first.result()
        eventually(lambda: server.stats()["samples"] >= reaches)
        allow_to_go_wrong(0.3)
        assert server.stats()["samples"] <= reaches + 110
        assert read(slow_reading).keys == list(range(30, SAMPLES))
        assert reading.result() == expected(0, SAMPLES, 30)


def test_the_laggard_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with (
        feedline.Server(Sized(1500, 30), "train", samples=1500, ring=90, wait_for=2),
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=30) as fast,
        feedline.attach("train", batch_size=30) as slow,
    ):
        reading = pool.submit(read, fast)
        for _ in slow:
            time.sleep(0.05)  # pause: a slow training step
        assert reading.result() == expected(0, 1500, 30)
    named = [record for record in caplog.records if "samples behind" in record.getMessage()]
    assert len(named) == 1
    assert f"pid {os.getpid()}" in named[0].getMessage()
    assert 'lag="history"' in named[0].getMessage()


def read_in_two_parts(samples: int) -> None:
    with feedline.attach("train", batch_size=30) as feed:
        iterator = iter(feed)
        take(iterator, samples, 30)
        say("took")
        hear()
        read(iterator)
        say("done")


def test_views_from_the_history_are_zero_copy_and_never_change(start: Start) -> None:
    # Two epochs: what is kept of the first is in nobody's way.
    history = f"{2 * SAMPLES * 5008}B"
    with (
        feedline.Server(Sized(SAMPLES, 30, width=5000), "train", ring=300, history=history),
        feedline.attach("train", batch_size=30) as late,
    ):
        # Of its own process it would let go of what is kept whenever it waits for a server.
        early = start(read_in_two_parts, samples=1800)
        early.expect("took")
        second = iter(late)
        kept = [next(second) for _ in range(3)]
        assert late.stats()["mode"] == "cow"
        assert late.stats()["leases"] == 3
        early.tell("go on")
        early.expect("done")
        assert late.stats()["kept"] == 0
        # Now the ring comes round.
        read(second)
        for _ in range(3):
            read(late)
        assert read(kept).keys == list(range(90))
        assert read(kept).exact


@pytest.mark.parametrize("history", [-0.1, 1.5, "abc", True, None, "-1GB", float("nan")])
def test_what_is_no_history(history: Any) -> None:
    with pytest.raises(feedline.FeedValueError, match="history="):
        feedline.Server([np.zeros(3)], "train", history=history)


def test_a_history_that_does_not_fit_is_refused_with_its_size() -> None:
    samples = 10_000_000_000
    server = feedline.Server(Sized(100, 10), "train", samples=samples, history=1.0)
    server.start()
    with pytest.raises(feedline.FeedMemoryError, match="history_dir="):
        server.wait()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(feedline.FeedValueError, match="not a folder"):
        feedline.Server([np.zeros(3)], "train", history_dir=tmp_path / "nowhere")


def test_the_default_keeps_two_per_cent() -> None:
    with (
        feedline.Server(torch_loader(10_000, 50), "train", ring=500) as server,
        feedline.attach("train", batch_size=50) as feed,
    ):
        next(iter(feed))
        assert server.stats()["history_samples"] == 200


def test_whole_batches_of_a_loader_without_len_go_on_after_the_first_epoch() -> None:
    """Then their number is known, and with it how much history there should be."""
    with (
        feedline.Server(
            Numbered(300, 10), "train", ring=5, history=1.0, whole_batches=True
        ) as server,
        feedline.attach("train") as feed,
    ):
        for epoch in range(3):
            assert read(feed) == expected(epoch, 300, 10)
        assert server.stats()["history_samples"] >= 30


def test_a_loader_that_counts_only_batches_has_a_history_in_its_first_epoch() -> None:
    with (
        feedline.Server(Sized(SAMPLES, 30), "train", ring=150, history=1.0),
        feedline.attach("train", batch_size=30) as early,
        feedline.attach("train", batch_size=30) as late,
    ):
        take(iter(early), 1800, 30)
        assert read(late) == expected(0, SAMPLES, 30)
