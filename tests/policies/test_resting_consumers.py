"""A consumer that has read its epoch and doesn't ask for the next: the others go on without it."""

from __future__ import annotations

import ctypes
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import feedline
from conftest import Start
from support.child import say
from support.loaders import EPOCH, Numbered
from support.reading import expected, keys_of, read
from support.waiting import allow_to_go_wrong

SAMPLES = 600


def test_others_go_on_within_seconds_and_it_joins_again_when_it_asks() -> None:
    with (
        # The others would wait without end for a consumer that stands still in mid-epoch.
        feedline.Server(
            Numbered(SAMPLES, 10), "train", wait_for=2, ring=60, stall_timeout_secs=3600
        ),
        ThreadPoolExecutor(1) as pool,
        feedline.attach("train", batch_size=7) as resting,
        feedline.attach("train", batch_size=7) as feed,
    ):
        first = pool.submit(read, resting)
        assert read(feed) == expected(0, SAMPLES, 7)
        assert first.result() == expected(0, SAMPLES, 7)
        for epoch in (1, 2):
            assert read(feed) == expected(epoch, SAMPLES, 7)
        again = pool.submit(read, resting)
        for epoch in itertools.count(3):
            if again.done():
                break
            assert read(feed) == expected(epoch, SAMPLES, 7)
        joined = again.result().keys[0] // EPOCH
        assert again.result() == expected(joined, SAMPLES, 7)
        assert joined >= 2


def starve_beside_a_busy_thread() -> None:
    """Whenever it wakes up to check, native code has the GIL for a while."""
    feed = feedline.attach("train", batch_size=7)
    assert read(feed) == expected(0, SAMPLES, 7)

    def hog() -> None:
        while True:
            ctypes.PyDLL(None).usleep(250_000)  # pause: holds the GIL on purpose

    batches = iter(feed)
    # As many as the ring can hold while the other stays where it is.
    first = read(batches, limit=8)
    threading.Thread(target=hog, daemon=True).start()
    say("took", keys=first.keys + keys_of(next(batches)))


def test_who_starves_with_pauses_starves_all_the_same(start: Start) -> None:
    with (
        feedline.Server(Numbered(SAMPLES, 10), "train", wait_for=2, ring=60),
        feedline.attach("train", batch_size=7) as resting,
    ):
        starving = start(starve_beside_a_busy_thread)
        assert read(resting) == expected(0, SAMPLES, 7)
        # Half the time that one is given that stands still in the middle of an epoch.
        assert starving.expect("took")["keys"] == expected(1, SAMPLES, 7).keys[:63]


def test_nobody_is_cut_off_while_nobody_starves() -> None:
    """All validate between epochs: each finds its next epoch where it left."""
    with (
        feedline.Server(Numbered(SAMPLES, 10), "train", wait_for=2, ring=60) as server,
        ThreadPoolExecutor(1) as pool,
        feedline.attach("train", batch_size=7) as one,
        feedline.attach("train", batch_size=16) as other,
    ):
        for epoch in range(2):
            reading = pool.submit(read, one)
            assert read(other) == expected(epoch, SAMPLES, 16)
            assert reading.result() == expected(epoch, SAMPLES, 7)
            allow_to_go_wrong(2.5)
        assert all(consumer["joined"] for consumer in server.stats()["consumers"])
