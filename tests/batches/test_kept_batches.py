"""Scenario 10: a kept batch stalls nobody, and never changes while any tensor over it lives."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import Numbered
from support.reading import expected, is_exact, keys_of, read
from support.waiting import eventually


def keep_the_first(name: str) -> None:
    """Leave the epoch, keep one batch, and sit in other code: nobody calls into the feed."""
    feed = feedline.attach(name, batch_size=7)
    first = next(iter(feed))
    say("holding")
    hear()
    say("done", stats=feed.stats(), **read([first]).as_json())


def test_next_iter_kept_while_others_read_many_turns(start: Start) -> None:
    with feedline.Server(Numbered(1000, 10, width=3001), "train", ring=60) as server:
        hoarder = start(keep_the_first, name="train")
        hoarder.expect("holding")
        feed = feedline.attach("train", batch_size=7)
        for _ in range(4):
            got = read(feed)
            assert got.exact
            assert len(got.keys) == 1000
        assert server.stats()["samples"] >= 4000
        hoarder.tell("end")
        report = hoarder.expect("done")
        assert report["keys"] == list(range(7))
        assert report["exact"]
        assert report["stats"]["kept"] >= 1
        feed.close()


def test_list_of_an_epoch_many_times_the_ring() -> None:
    with (
        feedline.Server(Numbered(2000, 10, width=1501), "train", epochs=2, wait_for=2, ring=60),
        ThreadPoolExecutor(1) as pool,
    ):
        hoarding = feedline.attach("train", batch_size=7)
        lean = feedline.attach("train", batch_size=16)
        reading = pool.submit(lambda: [read(lean) for _ in range(2)])
        first, second = list(hoarding), list(hoarding)
        assert reading.result() == [expected(0, 2000, 16), expected(1, 2000, 16)]
        # Checked only now, when the ring has come round some sixty times.
        assert read(first) == expected(0, 2000, 7)
        assert read(second) == expected(1, 2000, 7)
        hoarding.close()
        lean.close()


def test_list_in_a_process_of_its_own(start: Start) -> None:
    with feedline.Server(Numbered(2000, 10, width=999), "train", epochs=1, wait_for=2, ring=60):
        hoarder = start(roles.take_and_hold, batch_size=7, batches=286)
        with feedline.attach("train", batch_size=7) as feed:
            assert read(feed) == expected(0, 2000, 7)
        hoarder.expect("holding")
        hoarder.tell("end")
        report = hoarder.expect("done")
        assert report["keys"] == list(range(2000))
        assert report["exact"]


def test_list_and_then_nothing_more_holds_nobody_up_beyond_the_stall_time() -> None:
    """It has read its epoch, keeps the batches and doesn't ask again."""
    loader = Numbered(2000, 10, width=999)
    with (
        feedline.Server(loader, "train", epochs=2, wait_for=2, ring=60, stall_timeout_secs=3),
        ThreadPoolExecutor(1) as pool,
    ):
        hoarding = feedline.attach("train", batch_size=7)
        listing = pool.submit(list, hoarding)
        with feedline.attach("train", batch_size=7) as feed:
            for epoch in range(2):
                assert read(feed) == expected(epoch, 2000, 7)
        assert read(listing.result()) == expected(0, 2000, 7)
        hoarding.close()


@pytest.mark.parametrize("keep_every", [1, 2, 5])
def test_some_kept_some_not_some_written(keep_every: int) -> None:
    with feedline.Server(Numbered(3000, 10, width=777), "train", epochs=1, ring=60):
        kept: list[Any] = []
        with feedline.attach("train", batch_size=7) as feed:
            for number, batch in enumerate(feed):
                assert is_exact(batch)
                if number % keep_every == 0:
                    kept.append(batch)
                elif number % 3 == 0:
                    batch[0][:] = 0
        assert all(is_exact(batch) for batch in kept)
        assert keys_of(kept[0]) == list(range(7))


def test_a_kept_batch_can_be_written_to() -> None:
    with (
        feedline.Server(Numbered(1000, 10, width=777), "train", epochs=1, ring=60),
        feedline.attach("train", batch_size=7) as feed,
    ):
        iterator = iter(feed)
        first = next(iterator)
        address = np.asarray(first[0]).ctypes.data
        rest = read(iterator)
        assert rest.exact
        assert is_exact(first)
        # The tensor kept its address: pointers into it stay valid.
        assert np.asarray(first[0]).ctypes.data == address
        first[0][:] = 5
        assert (np.asarray(first[0]) == 5).all()


def test_a_small_view_keeps_its_bytes() -> None:
    with (
        feedline.Server(Numbered(1000, 10, width=777), "train", epochs=1, ring=60),
        feedline.attach("train", batch_size=7) as feed,
    ):
        iterator = iter(feed)
        x, _ = next(iterator)
        row = x[3, 5:9]
        want = np.asarray(x)[3, 5:9].copy()
        del x, _
        assert read(iterator).exact
        assert np.array_equal(np.asarray(row), want)


def test_batches_outlive_iterator_feed_and_server() -> None:
    server = feedline.Server(Numbered(100, 10, width=777), "train", epochs=1)
    server.start()
    feed = feedline.attach("train", batch_size=7)
    batches = list(feed)
    feed.close()
    server.stop()
    del feed, server
    gc.collect()
    assert read(batches) == expected(0, 100, 7)


def test_leases_end_with_the_last_view_and_nothing_stays_mapped() -> None:
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("memfd:" in line for line in maps)

    gc.collect()
    before = mapped()
    with feedline.Server(Numbered(100, 10, width=777), "train", epochs=1):
        feed = feedline.attach("train", batch_size=10)
        iterator = iter(feed)
        x, y = next(iterator)
        view = x[1:3]
        assert feed.stats()["leases"] >= 1
        del x, y
        assert feed.stats()["leases"] >= 1
        del view
        gc.collect()
        assert feed.stats()["leases"] == 0
        assert mapped() > before
        del iterator
        feed.close()
    del feed
    gc.collect()
    eventually(lambda: mapped() == before)
