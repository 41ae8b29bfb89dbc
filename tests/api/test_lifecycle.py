"""Starting, stopping, closing, and what `stats` says meanwhile."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import feedline
from support.loaders import Numbered
from support.processes import joined
from support.reading import expected, keys_of, read
from support.waiting import TIMEOUT_SECS, eventually


def test_errors_have_the_bases_that_callers_catch() -> None:
    for kind, base in (
        (feedline.FeedNotFoundError, TimeoutError),
        (feedline.ServerLostError, ConnectionError),
        (feedline.SchemaError, TypeError),
        (feedline.BatchSizeError, ValueError),
        (feedline.LoaderError, feedline.FeedlineError),
        (feedline.FeedEndedError, feedline.FeedlineError),
        (feedline.StalledError, feedline.FeedlineError),
    ):
        assert issubclass(kind, base)
        assert issubclass(kind, feedline.FeedlineError)
    assert issubclass(feedline.FeedlineError, Exception)


def test_serve_blocks_until_the_epochs_are_read() -> None:
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(feedline.serve, Numbered(100, 10), "train", epochs=2, ring=30)
        feed = feedline.attach("train", batch_size=7)
        assert read(feed) == expected(0, 100, 7)
        assert not serving.done()
        assert read(feed) == expected(1, 100, 7)
        assert serving.result() is None
        feed.close()


def test_a_server_that_ended_waits_for_its_readers() -> None:
    """All is published long before it is read; leaving then would lose it."""
    server = feedline.Server(Numbered(100, 10), "train", epochs=1, ring=1000)
    server.start()
    feed = feedline.attach("train", batch_size=10)
    iterator = iter(feed)
    first = next(iterator)
    eventually(lambda: server.stats()["samples"] == 100)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.wait)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        assert keys_of(first) + read(iterator).keys == list(range(100))
        waiting.result()
    assert server.stats()["state"] == "ended"
    server.stop()
    feed.close()


def test_stats_of_a_server() -> None:
    server = feedline.Server(Numbered(1000, 10), "train", samples=1000, epochs=2, ring=60)
    with pytest.raises(feedline.FeedlineError, match="not started"):
        server.stats()
    with server:
        feed = feedline.attach("train", batch_size=7)
        iterator = iter(feed)
        batches = [next(iterator) for _ in range(3)]
        stats = server.stats()
        assert stats["name"] == "train"
        assert stats["pid"] == os.getpid()
        assert stats["state"] == "running"
        assert stats["epoch"] == 0
        assert stats["samples"] >= 21
        assert stats["batches"] >= 3
        assert stats["samples_per_epoch"] == 1000
        assert stats["ring_samples"] >= 60
        assert stats["ring_bytes"] >= 60 * (37 + 8)
        assert stats["wait_secs"] >= 0
        (consumer,) = stats["consumers"]
        assert consumer["pid"] == os.getpid()
        assert consumer["batch_size"] == 7
        assert consumer["epoch"] == 0
        assert consumer["mode"] == "cow"
        eventually(lambda: server.stats()["consumers"][0]["batches"] == 3)
        assert server.stats()["consumers"][0]["cursor"] == 21
        assert len(batches) == 3
        del iterator, batches
        gc.collect()
        feed.close()
        eventually(lambda: server.stats()["consumers"] == [])


def test_stats_of_a_feed() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=2),
        feedline.attach("train", batch_size=7) as feed,
    ):
        stats = feed.stats()
        assert stats["name"] == "train"
        assert stats["server_pid"] == os.getpid()
        assert (stats["samples"], stats["batches"], stats["leases"]) == (0, 0, 0)
        read(feed)
        stats = feed.stats()
        assert (stats["samples"], stats["batches"]) == (100, 15)
        assert stats["waited_secs"] >= 0
        read(feed)
        assert feed.stats()["samples"] == 200


def test_closing_twice_and_using_after() -> None:
    with feedline.Server(Numbered(100, 10), "train") as server:
        feed = feedline.attach("train", batch_size=7)
        iterator = iter(feed)
        next(iterator)
        feed.close()
        feed.close()
        eventually(lambda: server.stats()["consumers"] == [])
        with pytest.raises(feedline.FeedlineError, match="closed"):
            next(iterator)
        with pytest.raises(feedline.FeedlineError, match="closed"):
            next(iter(feed))


def test_closing_from_another_thread_ends_the_wait_for_data() -> None:
    with feedline.Server(Numbered(1000, 10), "train", ring=60):
        slow = feedline.attach("train", batch_size=10)
        standing = iter(slow)
        first = next(standing)
        feed = feedline.attach("train", batch_size=10)
        with ThreadPoolExecutor(1) as pool:
            # It reads until the ring is empty, and then waits for the one that stands still.
            reading = pool.submit(read, feed)
            eventually(lambda: feed.stats()["batches"] > 0 or reading.done())
            feed.close()
            with pytest.raises(feedline.FeedlineError, match="closed"):
                reading.result(timeout=TIMEOUT_SECS)
        assert keys_of(first) + read(standing).keys == list(range(1000))
        slow.close()


def test_a_feed_that_is_dropped_lets_go_without_close() -> None:
    with feedline.Server(Numbered(2000, 10), "train", epochs=1, ring=60) as server:
        staying = feedline.attach("train", batch_size=7)
        stayer = iter(staying)
        first = next(stayer)
        dropped = feedline.attach("train", batch_size=7)
        iterator = iter(dropped)
        next(iterator)
        assert joined(server.stats()) == 2
        del dropped, iterator
        gc.collect()
        assert keys_of(first) + read(stayer).keys == list(range(2000))
        staying.close()


def test_the_same_name_again_and_again() -> None:
    for epoch in range(10):
        with (
            feedline.Server(Numbered(20, 5), "train", epochs=1),
            feedline.attach("train", batch_size=5) as feed,
        ):
            assert read(feed) == expected(0, 20, 5), epoch


def test_starting_twice_is_refused_or_nothing() -> None:
    server = feedline.Server(Numbered(20, 5), "train", epochs=1)
    server.start()
    with pytest.raises(feedline.FeedlineError, match="start"):
        server.start()
    with feedline.attach("train", batch_size=5) as feed:
        assert read(feed) == expected(0, 20, 5)
    server.stop()


def test_many_feeds_at_once_leave_no_descriptors() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = descriptors()
    for _ in range(3):
        with feedline.Server(Numbered(50, 5), "train", epochs=None):
            feeds = [feedline.attach("train", batch_size=7) for _ in range(20)]
            assert all(len(keys_of(next(iter(feed)))) == 7 for feed in feeds)
            for feed in feeds:
                feed.close()
            del feeds, feed
    gc.collect()
    eventually(lambda: descriptors() <= before)


def test_threads_of_a_consumer_do_not_outlive_its_feed() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    with feedline.Server(Numbered(50, 5), "train", epochs=1):
        with feedline.attach("train", batch_size=7) as feed:
            assert read(feed) == expected(0, 50, 7)
        del feed
    gc.collect()
    eventually(lambda: threads() <= before)


def stop_and_look(server: feedline.Server, socket: str, together: threading.Barrier) -> bool:
    together.wait()
    server.stop()
    return os.path.exists(socket)


def test_of_two_who_stop_a_server_none_comes_back_before_its_name_is_free() -> None:
    for _ in range(50):
        server = feedline.Server(Numbered(100, 10), "train").start()
        arguments = server, feedline.feeds()[0].path, threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(stop_and_look, *arguments) for _ in range(2)]
        assert not any(one.result() for one in both)
