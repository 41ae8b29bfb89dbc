"""How large the ring is: what `ring=` means, and what happens when memory is short."""

from __future__ import annotations

import re
import resource
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import say
from support.hanging_loaders import Awaited
from support.loaders import Numbered
from support.reading import expected, read

MB = 1_000_000
MIB = 1 << 20


@pytest.mark.parametrize(
    ("ring", "low", "high"),
    [
        ("64MB", 64 * MB, 64 * MIB),
        ("64MiB", 64 * MIB, 64 * MIB),
        ("1GiB", 1 << 30, 1 << 30),
        ("512 KB", 512_000, 512 * 1024),
        ("0.1GB", 100 * MB, 103 * MIB),
    ],
)
def test_a_size_in_bytes(ring: str, low: int, high: int) -> None:
    with (
        feedline.Server(Numbered(100, 10, width=1000), "train", epochs=1, ring=ring) as server,
        feedline.attach("train", batch_size=7) as feed,
    ):
        # Whole pages per field, huge ones for large fields, hence a little slack.
        assert low * 0.98 <= server.stats()["ring_bytes"] <= high * 1.02 + 2 * MIB
        assert read(feed) == expected(0, 100, 7)


def test_a_number_of_samples() -> None:
    with feedline.Server(Numbered(3000, 10, width=5000), "train", epochs=1, ring=1000) as server:
        with feedline.attach("train", batch_size=7) as feed:
            assert read(feed) == expected(0, 3000, 7)
        stats = server.stats()
        assert 1000 <= stats["ring_samples"] <= 1100
        assert 1000 * 5008 <= stats["ring_bytes"] <= 1100 * 5008


@pytest.mark.parametrize(
    "ring", ["abc", "", "12 parsecs", "-5MB", "MB", "0MB", -1, 0, 2.5, "nanMB"]
)
def test_sizes_that_are_none(ring: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        feedline.Server(Numbered(10, 5), "train", ring=ring)
    message = str(error.value)
    assert "ring" in message
    assert str(ring) in message
    # The way out: a size that would do.
    assert ("MB" if isinstance(ring, str) else "whole" if ring == 2.5 else "at least 1") in message


def test_a_ring_too_small_for_two_batches_names_both_sizes() -> None:
    loader = Awaited([np.zeros((10, 1_000_000), np.uint8)])
    loader.server = server = feedline.Server(loader, "train", epochs=1, ring="1MB")
    server.start()
    with pytest.raises(feedline.FeedMemoryError) as seen:
        feedline.attach("train")
    with pytest.raises(feedline.FeedMemoryError) as raised:
        server.wait()
    for error in (seen.value, raised.value):
        assert "ring of 1.0 MB" in str(error)
        assert "batches of 10.0 MB" in str(error)
        assert 'ring="2' in str(error), "the size that would do"
    server.stop()


def test_without_a_size_there_is_room_for_large_batches() -> None:
    batches = [np.full((10, 1_000_000), i, np.uint8) for i in range(4)]
    with feedline.Server(batches, "train", epochs=1), feedline.attach("train") as feed:
        assert [int(batch[5, 77]) for batch in feed] == [0, 1, 2, 3]


def _limit_address_space(more_bytes: int) -> None:
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def serve_in_little_memory(ring: str, more_bytes: int) -> None:
    _limit_address_space(more_bytes)
    feedline.serve(Numbered(1000, 10, width=100_000), "train", epochs=1, ring=ring)


def attach_in_little_memory(name: str, more_bytes: int) -> None:
    _limit_address_space(more_bytes)
    say("limited")
    next(iter(feedline.attach(name, batch_size=10)))


def test_a_server_under_a_memory_limit_says_what_it_wanted(start: Start) -> None:
    child = start(serve_in_little_memory, ring="256MB", more_bytes=100 * MIB)
    report = child.report()
    assert report["event"] == "error"
    assert "FeedMemoryError" in report["bases"], report["traceback"]
    assert re.search(r"ring of 25[5-9].* MB", report["message"]), report["message"]
    assert "ring=" in report["message"], "the way out"
    # It ended by itself, not by a signal.
    assert child.exit_code() == 1


def test_a_consumer_under_a_memory_limit_says_so_and_nobody_notices(start: Start) -> None:
    loader = Numbered(100, 10, width=1_000_000)
    with feedline.Server(loader, "train", epochs=1, ring="256MB"):
        child = start(attach_in_little_memory, name="train", more_bytes=100 * MIB)
        child.expect("limited")
        report = child.report()
        assert report["event"] == "error"
        assert "FeedMemoryError" in report["bases"], report["traceback"]
        assert '"train"' in report["message"], report["message"]
        assert re.search(r"25[5-9].* MB", report["message"]), report["message"]
        assert child.exit_code() == 1
        with feedline.attach("train", batch_size=10) as feed:
            assert read(feed) == expected(0, 100, 10)
