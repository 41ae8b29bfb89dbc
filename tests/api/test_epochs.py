"""Epochs follow each other without a barrier, may be empty, and an iterator is one of them."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import feedline
from support.loaders import EPOCH, Endless, Numbered
from support.reading import expected, is_exact, keys_of, read
from support.waiting import eventually


def test_the_tail_is_the_only_smaller_batch_and_drop_last_leaves_it_out() -> None:
    with feedline.Server(Numbered(100, 16), "train", epochs=2):
        feed = feedline.attach("train", batch_size=30)
        assert read(feed).sizes == [30, 30, 30, 10]
        assert read(feed) == expected(1, 100, 30)
        feed.close()
    with feedline.Server(Numbered(100, 16), "train", epochs=2):
        feed = feedline.attach("train", batch_size=30, drop_last=True)
        assert read(feed).sizes == [30, 30, 30]
        # The left-out tail is passed over: the next epoch begins with its own first sample.
        assert read(feed) == expected(1, 100, 30, drop_last=True)
        feed.close()


def test_drop_last_leaves_nothing_of_an_epoch_smaller_than_a_batch() -> None:
    with (
        feedline.Server(Numbered(10, 4), "train", samples=10, epochs=2),
        feedline.attach("train", batch_size=64, drop_last=True) as feed,
    ):
        assert len(feed) == 0
        assert list(feed) == []
        assert list(feed) == []


def test_an_epoch_of_zero_samples_between_two_others() -> None:
    with (
        feedline.Server(Numbered([20, 0, 20], 8), "train", epochs=3),
        feedline.attach("train", batch_size=8) as feed,
    ):
        assert read(feed) == expected(0, 20, 8)
        assert list(feed) == []
        assert read(feed) == expected(2, 20, 8)


def test_epochs_may_differ_in_length() -> None:
    lengths = [20, 3, 41]
    with (
        feedline.Server(Numbered(lengths, 8), "train", epochs=3),
        feedline.attach("train", batch_size=6) as feed,
    ):
        for epoch, samples in enumerate(lengths):
            assert read(feed) == expected(epoch, samples, 6)


def test_after_the_last_epoch_the_feed_says_that_it_ended() -> None:
    with feedline.Server(Numbered(20, 8), "train", epochs=2):
        feed = feedline.attach("train", batch_size=8)
        read(feed)
        read(feed)
        for _ in range(2):
            with pytest.raises(feedline.FeedEndedError, match="train"):
                next(iter(feed))
        feed.close()


def test_the_end_is_known_after_the_server_is_gone() -> None:
    server = feedline.Server(Numbered(20, 8), "train", epochs=1)
    server.start()
    feed = feedline.attach("train", batch_size=8)
    assert read(feed) == expected(0, 20, 8)
    server.wait()
    server.stop()
    with pytest.raises(feedline.FeedEndedError):
        next(iter(feed))
    feed.close()


def test_a_fast_consumer_is_in_the_next_epochs_while_a_slow_one_ends_the_first() -> None:
    with feedline.Server(Numbered(50, 10), "train", epochs=4, ring=220, epochs_ahead=3):
        slow = feedline.attach("train", batch_size=10)
        slow_iterator = iter(slow)
        first = next(slow_iterator)
        fast = feedline.attach("train", batch_size=10)
        # All in one thread: a barrier anywhere would hang here.
        for epoch in range(3):
            assert read(fast) == expected(epoch, 50, 10)
        fast_iterator = iter(fast)
        assert keys_of(next(fast_iterator))[0] == 3 * EPOCH
        assert is_exact(first)
        assert read(slow_iterator).keys == expected(0, 50, 10).keys[10:]
        for epoch in range(1, 4):
            assert read(slow) == expected(epoch, 50, 10)
        assert read(fast_iterator).keys == expected(3, 50, 10).keys[10:]
        slow.close()
        fast.close()


def test_breaking_off_and_iterating_again_is_a_whole_epoch_again() -> None:
    """The ring still has this epoch's start: `join="auto"` goes back to it."""
    with feedline.Server(Numbered(100, 10), "train", epochs=2, ring=400):
        feed = feedline.attach("train", batch_size=7)
        for batch in feed:
            assert is_exact(batch)
            break
        assert read(feed) == expected(0, 100, 7)
        assert read(feed) == expected(1, 100, 7)
        feed.close()


def test_breaking_off_past_the_rings_reach_begins_the_next_epoch_at_once() -> None:
    loader = Numbered(5000, 10)
    with feedline.Server(loader, "train", epochs=2, ring=60):
        feed = feedline.attach("train", batch_size=7)
        assert read(feed, limit=100).keys == list(range(700))
        assert read(feed) == expected(1, 5000, 7)
        feed.close()
    # Nobody needed the rest of the first epoch, so nobody prepared it.
    assert loader.samples_yielded < 5000 + 1000


def test_next_iter_works_time_after_time() -> None:
    with feedline.Server(Numbered(100, 10), "train", ring=400):
        feed = feedline.attach("train", batch_size=8)
        for _ in range(20):
            batch = next(iter(feed))
            assert len(keys_of(batch)) == 8
            assert keys_of(batch)[0] % EPOCH == 0
            assert is_exact(batch)
        feed.close()


def test_two_iterators_at_once_are_two_epochs_of_their_own() -> None:
    with feedline.Server(Numbered(500, 10), "train", epochs=3, ring=60):
        feed = feedline.attach("train", batch_size=7)
        left, right = zip(*zip(feed, feed, strict=True), strict=True)
        assert read(left) == expected(0, 500, 7)
        assert read(right) == expected(0, 500, 7)
        feed.close()


def test_iter_without_next_has_no_side_effects() -> None:
    loader = Numbered(2000, 10)
    with feedline.Server(loader, "train", epochs=2, ring=60) as server:
        idle = feedline.attach("train", batch_size=7)
        before = server.stats()["consumers"]
        iterators = [iter(idle) for _ in range(50)]
        assert server.stats()["consumers"] == before
        # Had one of them taken a place in the epoch, the ring would stand still here.
        with feedline.attach("train", batch_size=7) as busy:
            assert read(busy) == expected(0, 2000, 7)
        assert read(iterators[0]) == expected(1, 2000, 7)
        del iterators
        gc.collect()
        idle.close()
    assert loader.epochs_begun == 2


def test_an_abandoned_iterator_lets_go_at_once() -> None:
    with feedline.Server(Numbered(2000, 10), "train", epochs=1, ring=60):
        abandoning = feedline.attach("train", batch_size=7)
        staying = feedline.attach("train", batch_size=7)
        stayer = iter(staying)
        assert keys_of(next(stayer)) == list(range(7))
        iterator = iter(abandoning)
        next(iterator)
        del iterator
        assert read(stayer).keys == list(range(7, 2000))
        abandoning.close()
        staying.close()


def test_an_exhausted_iterator_stays_exhausted() -> None:
    with feedline.Server(Numbered(20, 10), "train", epochs=2):
        feed = feedline.attach("train", batch_size=10)
        iterator = iter(feed)
        assert len(list(iterator)) == 2
        assert list(iterator) == []
        assert read(feed) == expected(1, 20, 10)
        feed.close()


def test_an_infinite_stream() -> None:
    with (
        feedline.Server(Endless(10), "train", ring=60),
        feedline.attach("train", batch_size=7) as feed,
    ):
        got = read(feed, limit=500)
    assert got.keys == list(range(3500))
    assert got.exact


def test_epoch_counts_from_zero() -> None:
    with feedline.Server(Numbered(20, 10), "train", epochs=3):
        feed = feedline.attach("train", batch_size=10)
        for epoch in range(3):
            for batch in feed:
                assert feed.epoch == epoch
                assert keys_of(batch)[0] // EPOCH == epoch
        feed.close()


def waits(server: feedline.Server) -> bool:
    """Whether the loader has had to wait: here only for an epoch that may not begin yet."""
    return bool(server.stats()["wait_secs"] > 0)


@pytest.mark.parametrize(("epochs_ahead", "begun"), [(None, 3), (0, 1), (5, 6), (61, 62)])
def test_a_tiny_dataset_is_not_read_far_ahead(epochs_ahead: int | None, begun: int) -> None:
    options: dict[str, Any] = {} if epochs_ahead is None else {"epochs_ahead": epochs_ahead}
    loader = Numbered(8, 4)
    with feedline.Server(loader, "train", **options) as server:
        eventually(lambda: waits(server))
        assert loader.epochs_begun == begun
        with feedline.attach("train", batch_size=4) as feed:
            for epoch in range(3):
                assert read(feed) == expected(epoch, 8, 4)
                now = begun + epoch + 1
                eventually(lambda now=now: loader.epochs_begun == now)  # type: ignore[misc]


@pytest.mark.parametrize("lag", ["block", "history", "skip"])
def test_the_slowest_bounds_how_many_epochs_are_read_ahead(lag: Any) -> None:
    loader = Numbered(8, 4)
    with (
        feedline.Server(loader, "train", lag=lag, wait_for=2) as server,
        feedline.attach("train", batch_size=4) as slow,
        feedline.attach("train", batch_size=4) as fast,
        ThreadPoolExecutor() as pool,
    ):
        standing = iter(slow)
        first = pool.submit(next, standing)
        for epoch in range(3):
            assert read(fast) == expected(epoch, 8, 4)
        first.result()
        ahead = pool.submit(read, fast)
        if lag == "skip":
            assert ahead.result() == expected(3, 8, 4)
            eventually(lambda: loader.epochs_begun == 7)
        else:
            eventually(lambda: any(one["waiting"] for one in server.stats()["consumers"]))
            assert loader.epochs_begun == 3
            read(standing)
            assert ahead.result() == expected(3, 8, 4)
            eventually(lambda: loader.epochs_begun == 4)


@pytest.mark.parametrize("epochs_ahead", [-1, 62, 1.5, True, None])
def test_numbers_of_epochs_that_cannot_be(epochs_ahead: Any) -> None:
    with pytest.raises(feedline.FeedValueError, match="epochs_ahead"):
        feedline.Server(Numbered(8, 4), "train", epochs_ahead=epochs_ahead)
