"""A ring that was replaced is given back, however many consumers sit idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support.child import say
from support.loaders import EPOCH, Numbered
from support.reading import expected, read
from support.waiting import eventually

SAMPLES = 3000


def descriptors_on_their_way() -> int | None:
    """Count descriptors in messages that this process has not read yet: each keeps a ring alive.

    None if the kernel doesn't tell.
    """
    found = []
    for entry in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            for line in entry.read_text().splitlines():
                if line.startswith("scm_fds:"):
                    found.append(int(line.split()[1]))
    return sum(found) if found else None


def rings_mapped() -> int:
    """Count the rings that this process, server and consumers, has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "feedline-ring" in line})


def replace_the_ring(server: feedline.Server) -> None:
    """Make it grow, several times, for consumers that come and go."""
    before = server.stats()["generation"]
    for batch_size in (100, 400, 1500):
        with feedline.attach("train", batch_size=batch_size) as feed:
            got = read(feed)
            assert got == expected(got.keys[0] // EPOCH, SAMPLES, batch_size)
    assert server.stats()["generation"] >= before + 3


def never_asked(feed: feedline.Feed) -> None:
    pass


def left_in_the_middle(feed: feedline.Feed) -> None:
    next(iter(feed))


def rests_between_two_epochs(feed: feedline.Feed) -> None:
    read(feed)


def stuck_in_mid_epoch(feed: feedline.Feed) -> Iterator[Any]:
    iterator = iter(feed)
    next(iterator)
    return iterator


IDLE: dict[str, Callable[[feedline.Feed], Iterator[Any] | None]] = {
    idle.__name__: idle
    for idle in (never_asked, left_in_the_middle, rests_between_two_epochs, stuck_in_mid_epoch)
}


def sit_idle(how: str) -> None:
    """Server and consumers in one process, so that all there is can be counted in one place."""
    loader = Numbered(SAMPLES, 10)
    with feedline.Server(loader, "train", ring=30, stall_timeout_secs=0.2) as server:
        feed = feedline.attach("train", batch_size=7)
        iterator = IDLE[how](feed)
        replace_the_ring(server)
        say("replaced", sent=descriptors_on_their_way(), mapped=rings_mapped())
        if iterator is not None:
            with pytest.raises(feedline.StalledError):
                next(iterator)
        got = read(feed)
        assert got == expected(got.keys[0] // EPOCH, SAMPLES, 7)
        del iterator
        feed.close()
        eventually(lambda: rings_mapped() == 1)
        say("closed", sent=descriptors_on_their_way())


@pytest.mark.parametrize("how", sorted(IDLE))
def test_idle_consumers_keep_no_more_than_the_ring_they_know(start: Start, how: str) -> None:
    """A new ring is sent to consumers that read on; the others get it when they ask."""
    child = start(sit_idle, how=how)
    report = child.expect("replaced")
    if report["sent"] is None:
        pytest.skip("this kernel doesn't tell of descriptors on their way")
    # The server's own, and the one that the idle consumer knows or is about to.
    assert report["sent"] <= 1
    assert report["mapped"] <= 2
    assert child.expect("closed")["sent"] == 0
