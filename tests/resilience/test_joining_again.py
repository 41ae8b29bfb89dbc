"""Joining again: after an interrupted join, and while tensors of the time before are dropped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import feedline
from support.loaders import EPOCH, Numbered
from support.processes import joined
from support.reading import expected, keys_of, read
from support.waiting import allow_to_go_wrong, eventually


class Interrupted(KeyboardInterrupt):
    """What the signal handler raises, as Ctrl-C does in a notebook."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupt_the_join(server: feedline.Server, iterator: Iterator[Any]) -> None:
    """Ask for a first batch, which `wait_for` holds back, and be interrupted in the wait."""

    def interrupt_once_the_server_knows() -> None:
        eventually(lambda: joined(server.stats()) == 1)
        os.kill(os.getpid(), signal.SIGALRM)

    with ThreadPoolExecutor(1) as pool:
        interrupting = pool.submit(interrupt_once_the_server_knows)
        with pytest.raises(Interrupted):
            next(iterator)
        interrupting.result()


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("anew", [False, True], ids=["same iterator", "new iterator"])
def test_an_interrupted_join_can_be_gone_on_with(anew: bool) -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=1, wait_for=2) as server,
        feedline.attach("train", batch_size=7) as feed,
        feedline.attach("train", batch_size=8) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        iterator = iter(feed)
        interrupt_the_join(server, iterator)
        if anew:
            iterator = iter(feed)
        reading = pool.submit(read, other)
        if not anew:
            # By now the join is answered, and nobody has heard it yet; and it is long enough ago
            # for a consumer to read what the server has sent.
            assert reading.result() == expected(0, 100, 8)
            allow_to_go_wrong(0.2)
        assert read(iterator) == expected(0, 100, 7)
        assert reading.result() == expected(0, 100, 8)


@pytest.mark.usefixtures("alarm")
def test_an_interrupted_join_leaves_no_cursor_behind() -> None:
    """A dropped iterator is gone: it holds up nobody and doesn't count for `wait_for`."""
    with (
        feedline.Server(Numbered(1000, 10), "train", epochs=1, wait_for=2, ring=60) as server,
        feedline.attach("train", batch_size=7) as feed,
        feedline.attach("train", batch_size=8) as other,
        feedline.attach("train", batch_size=9) as third,
        ThreadPoolExecutor(1) as pool,
    ):
        iterator = iter(feed)
        interrupt_the_join(server, iterator)
        del iterator
        eventually(lambda: joined(server.stats()) == 0)
        reading = pool.submit(read, other)
        eventually(lambda: joined(server.stats()) == 1)
        assert read(third) == expected(0, 1000, 9)
        assert reading.result() == expected(0, 1000, 8)


@pytest.mark.usefixtures("alarm")
def test_joins_interrupted_at_any_moment() -> None:
    """An answer that comes too late belongs to a join that was taken back."""
    with (
        feedline.Server(Numbered(100, 10), "train", ring=60) as server,
        feedline.attach("train", batch_size=7) as feed,
    ):
        interrupted = 0
        for round_ in range(400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 10e-6 + round_ % 40 * 5e-6)
                    next(iter(feed))
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
        assert interrupted > 0
        assert joined(server.stats()) <= 1
        got = read(feed)
        assert got == expected(got.keys[0] // EPOCH, 100, 7)


class Gated:
    """An epoch of numbers, 100 at a time, short of the ring's end until the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        for start in range(0, 20_000, 100):
            if start == 4500:
                self.gate.wait()
            yield np.arange(start, start + 100, dtype=np.int64).reshape(100, 1)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def drop_while_joining_again(server: feedline.Server, feed: feedline.Feed) -> Iterator[Any]:
    """Break off with a full prefetch queue, and begin again while another thread empties it."""
    iterator = iter(feed)
    queue = [next(iterator) for _ in range(3000)]
    del iterator
    over = threading.Event()

    def drop() -> None:
        while queue and not over.is_set():
            queue.pop()

    def watch() -> None:
        # Each call of `stats` takes in what consumers have reported, as the producer does.
        while not over.is_set():
            server.stats()

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(drop), pool.submit(watch)]
        iterator = iter(feed)
        assert next(iterator)[0, 0] == 0
        over.set()
        for other in others:
            other.result()
    return iterator


@pytest.mark.usefixtures("eager_threads")
def test_old_tensors_dropped_on_another_thread_while_joining_again() -> None:
    """What is released then belongs to the cursor of before, and must not move the new one."""
    for _ in range(20):
        loader = Gated()
        with (
            feedline.Server(loader, "train", ring=5000) as server,
            feedline.attach("train", batch_size=1, format="numpy") as feed,
        ):
            iterator = drop_while_joining_again(server, feed)
            loader.gate.set()
            capacity = server.stats()["ring_samples"]
            eventually(lambda: server.stats()["samples"] >= capacity - 100)  # noqa: B023
            # It stops there by itself.
            allow_to_go_wrong(0.02)
            assert server.stats()["samples"] <= capacity + 1
            got = [int(next(iterator)[0, 0]) for _ in range(1500)]
            assert got == list(range(1, 1501))
            del iterator


def test_breaking_off_and_beginning_again_with_batches_in_hand() -> None:
    """Every time another one lives on: each keeps its bytes, and each epoch begins at its start."""
    with (
        feedline.Server(Numbered(200, 10), "train", ring=400, epochs=1) as server,
        feedline.attach("train", batch_size=7) as feed,
    ):
        held = []
        for number in range(20):
            for taken, batch in enumerate(feed):
                if taken == number:
                    held.append((taken, batch))
                    break
        for taken, batch in held:
            assert keys_of(batch) == list(range(taken * 7, taken * 7 + 7))
            assert read([batch]).exact
        eventually(lambda: joined(server.stats()) == 0)
