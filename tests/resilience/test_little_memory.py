"""A ring that can't be replaced or grow: a consumer gets an error, and the feed goes on."""

from __future__ import annotations

import os
import resource
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import loaders
from support.child import hear, say
from support.processes import Child
from support.reading import Reading, expected, read
from support.waiting import TIMEOUT_SECS, eventually

MB = 1 << 20


def serve_in_little_memory(
    loader: str, args: list[Any], spare_mb: int, width: int, **options: Any
) -> None:
    """Serve; once the first ring is there, leave this process `spare_mb` of address space."""
    source = getattr(loaders, loader)(*args, width=width)
    with feedline.Server(source, "train", **options) as server:
        eventually(lambda: server.stats()["ring_bytes"] > 0)
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (limit + spare_mb * MB, limit + spare_mb * MB))
        say("ready", ring_bytes=server.stats()["ring_bytes"])
        while hear() == "stats":
            say("stats", stats=server.stats())


def is_calm(server: Child) -> bool:
    """Whether it runs, and has not filled the log by trying over and over."""
    return server.ask("stats")["stats"]["state"] == "running" and server.stderr.count("\n") < 20


def test_no_room_for_another_ring_when_one_is_stuck(start: Start) -> None:
    """Going on without the stuck one takes a second ring; without memory for it, all wait."""
    server = start(
        serve_in_little_memory,
        loader="Numbered",
        args=[20_000, 10],
        width=4096,
        spare_mb=40,
        ring="40MB",
        stall_timeout_secs=0.3,
    )
    assert server.expect("ready")["ring_bytes"] > 36 * MB
    stuck = feedline.attach("train", batch_size=10)
    iterator = iter(stuck)
    first = next(iterator)
    with feedline.attach("train", batch_size=100) as feed, ThreadPoolExecutor(1) as pool:
        reading: Future[Reading] = pool.submit(read, feed)
        # Far longer than the stall time: a chance to be wrong, not a pause to be right.
        wait([reading], timeout=1.5)
        assert is_calm(server)
        assert read([first]).keys == list(range(10))
        stuck.close()
        assert reading.result() == expected(0, 20_000, 100)
    assert is_calm(server)


def test_no_room_for_a_batch_that_was_thought_to_fit(start: Start) -> None:
    """The epoch turns out longer than announced, so the ring must grow further than it can."""
    server = start(
        serve_in_little_memory,
        loader="Endless",
        args=[100],
        width=1024,
        spare_mb=100,
        ring=400,
        samples=50,
        stall_timeout_secs=30,
    )
    server.expect("ready")
    with feedline.attach("train", batch_size=10) as good, ThreadPoolExecutor(1) as pool:
        iterator = iter(good)
        assert read(iterator, limit=1).keys == list(range(10))
        greedy = feedline.attach("train", batch_size=10_000_000)
        asking = pool.submit(next, iter(greedy))
        # It may wait for the growth that the other asked for, and goes on in any case.
        rest = read(iterator, limit=3000)
        with pytest.raises(feedline.BatchSizeError, match="10000000"):
            asking.result(timeout=TIMEOUT_SECS)
        greedy.close()
        assert rest == Reading([10] * 3000, list(range(10, 30_010)), True)
        assert read(iterator, limit=100).exact
    assert is_calm(server)
