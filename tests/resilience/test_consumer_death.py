"""A consumer that is killed, stopped or stuck: the others go on, and what it held is free."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import EPOCH, Numbered
from support.processes import all_wait_for, joined
from support.reading import expected, is_exact, read
from support.waiting import eventually

pytestmark = pytest.mark.alone


def hold_in_the_middle_of_a_batch(name: str, batch_size: int) -> None:
    """Keep leases in a list, in a view and on another thread, and never give one back."""
    feed = feedline.attach(name, batch_size=batch_size)
    iterator = iter(feed)
    held = [next(iterator) for _ in range(3)]
    view = held.pop()[0][1:2]
    for_ever = threading.Event()
    threading.Thread(target=lambda kept: for_ever.wait(), args=(held,), daemon=True).start()
    say("holding", byte=int(view[0, 0]))
    hear()


def test_a_killed_consumer_frees_what_it_held_at_once(start: Start) -> None:
    # Without end, if it had to be cut off for standing still.
    options: dict[str, Any] = {"ring": 60, "wait_for": 2, "stall_timeout_secs": 3600}
    with feedline.Server(Numbered(3000, 10), "train", epochs=1, **options) as server:
        victim = start(hold_in_the_middle_of_a_batch, name="train", batch_size=7)
        feed = feedline.attach("train", batch_size=7)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read, feed)
            victim.expect("holding")
            # The victim stands still, so the ring fills and the reader waits for it.
            capacity = server.stats()["ring_samples"]
            eventually(lambda: server.stats()["samples"] >= capacity - 10)
            assert not reading.done()
            victim.kill()
            eventually(lambda: joined(server.stats()) == 1)
            eventually(lambda: server.stats()["samples"] > 21 + capacity)
            assert reading.result() == expected(0, 3000, 7)
        feed.close()


def test_consumers_killed_again_and_again_leave_no_trace_in_the_feed(start: Start) -> None:
    with (
        feedline.Server(Numbered(200, 10), "train", ring=60) as server,
        feedline.attach("train", batch_size=7) as feed,
    ):
        for turn in range(4):
            victim = start(roles.follow, batch_size=7 + turn)
            with ThreadPoolExecutor(1) as pool:
                heard = pool.submit(lambda child: [child.expect("attached")], victim)
                while not heard.done():
                    assert read(feed).exact
            victim.kill()
            eventually(lambda: joined(server.stats()) <= 1)
            got = read(feed)
            assert got.exact
            assert len(got.keys) == 200


def stand_still_then_go_on(name: str, batch_size: int) -> None:
    iterator = iter(feedline.attach(name, batch_size=batch_size))
    held = next(iterator)
    say("standing")
    hear()
    assert is_exact(held)
    for batch in iterator:
        assert is_exact(batch)
    say("done")


def test_a_consumer_that_stands_still_is_detached_and_finds_out(start: Start) -> None:
    loader = Numbered(3000, 10)
    with feedline.Server(loader, "train", epochs=2, ring=60, stall_timeout_secs=0.5):
        stuck = start(stand_still_then_go_on, name="train", batch_size=7)
        stuck.expect("standing")
        with feedline.attach("train", batch_size=7) as feed:
            got = read(feed)
            assert got == expected(got.keys[0] // EPOCH, 3000, 7)
        stuck.tell("go on")
        stuck.expect_error(feedline.StalledError, "train")


def test_waiting_for_others_to_start_is_not_standing_still() -> None:
    """Under `wait_for` nobody may read yet, however long the last one takes to come."""
    with (
        feedline.Server(
            Numbered(1000, 10), "train", epochs=1, ring=60, wait_for=2, stall_timeout_secs=0.3
        ),
        ThreadPoolExecutor(1) as pool,
    ):
        early, late = (feedline.attach("train", batch_size=7) for _ in range(2))
        reading = pool.submit(read, early)
        # Three times the stall time: a chance to be wrong.
        with pytest.raises(TimeoutError):
            reading.result(timeout=1.0)
        assert read(late) == expected(0, 1000, 7)
        assert reading.result() == expected(0, 1000, 7)
        early.close()
        late.close()


def test_a_pause_shorter_than_the_stall_time_costs_nothing(start: Start) -> None:
    with feedline.Server(Numbered(20_000, 10), "train", epochs=1, ring=60, wait_for=2) as server:
        paused = start(roles.consume, batch_size=7)
        with feedline.attach("train", batch_size=7) as feed, ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read, feed)
            eventually(lambda: server.stats()["samples"] > 100)
            paused.stop()
            eventually(lambda: all_wait_for(paused.pid, server.stats()))
            paused.resume()
            assert reading.result() == expected(0, 20_000, 7)
        paused.expect("attached")
        report = paused.expect("epoch")
        assert (report["keys"], report["exact"]) == (list(range(20_000)), True)
