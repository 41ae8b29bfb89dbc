"""Forked children that outlive something: a consumer that left or died, or a server's loading."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import feedline
from conftest import Start
from feedline._core import pool_of_feed
from resilience.test_fork import BATCH, SAMPLES, exit_code, in_a_fork
from support import roles
from support.child import say
from support.loaders import Numbered
from support.reading import expected, read


def fork_and_stay(name: str) -> None:
    """Leave a child behind, whose descriptors and mappings must not keep the parent's place."""
    feed = feedline.attach(name, batch_size=BATCH)
    iterator = iter(feed)
    held = [next(iterator) for _ in range(2)]
    ready, gone = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(gone)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    rest = read(iterator)
    say("read", exact=rest.exact, count=len(rest.keys) + len(read(held).keys), child=pid)
    feed.close()
    say("closed")
    # The pipe ends with this process, and with it the child.


def test_a_parent_that_leaves_is_gone_even_if_its_child_stays(start: Start) -> None:
    with feedline.Server(Numbered(SAMPLES, 10), "train", epochs=2, wait_for=2, ring=60):
        forker = start(fork_and_stay, name="train")
        with feedline.attach("train", batch_size=16) as feed:
            for epoch in range(2):
                assert read(feed) == expected(epoch, SAMPLES, 16)
        report = forker.expect("read")
        assert (report["exact"], report["count"]) == (True, SAMPLES)
        forker.expect("closed")
        assert forker.exit_code() == 0


def kill_the_parent_keep_the_child(name: str) -> None:
    feed = feedline.attach(name, batch_size=BATCH)
    iterator = iter(feed)
    held = [next(iterator) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        # An orphan with all of the parent's descriptors; it ends with the pipe from the test.
        sys.stdin.read()
        os._exit(0)
    say("holding", child=pid, batches=len(held))
    sys.stdin.read()


def test_a_killed_parent_is_gone_even_if_its_child_lives(start: Start) -> None:
    """The socket stays open in the orphan, so no end-of-file tells of the death."""
    with feedline.Server(Numbered(SAMPLES, 10), "train", epochs=1, wait_for=2, ring=60):
        victim = start(kill_the_parent_keep_the_child, name="train")
        with feedline.attach("train", batch_size=16) as feed:
            iterator = iter(feed)
            first = next(iterator)
            orphan = victim.expect("holding")["child"]
            victim.kill()
            assert read([first]).keys + read(iterator).keys == list(range(SAMPLES))
    os.kill(orphan, 9)


def test_a_fork_of_the_servers_process_leaves_the_server_alone(start: Start) -> None:
    with feedline.Server(Numbered(SAMPLES, 10), "train", epochs=2, wait_for=2, ring=60) as server:
        consumer = start(roles.consume, batch_size=16, epochs=2)
        feed = feedline.attach("train", batch_size=16)

        def stop_it() -> bool:
            server.stop()
            return True

        iterator = iter(feed)
        got = read(iterator, limit=20)
        assert exit_code(in_a_fork(lambda: True)) == 0
        assert exit_code(in_a_fork(stop_it)) == 0
        assert got.keys + read(iterator).keys == list(range(SAMPLES))
        assert read(feed) == expected(1, SAMPLES, 16)
        consumer.expect("attached")
        for epoch in range(2):
            assert consumer.expect("epoch")["keys"] == expected(epoch, SAMPLES, 16).keys
        consumer.expect("done")
        feed.close()


def serve_and_fork_by_the_book(name: str) -> None:
    """Fork a child that leaves by `sys.exit` and runs what is registered for the end."""
    with feedline.Server(Numbered(SAMPLES, 10), name, epochs=2, ring=60) as server:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        say("forked", code=exit_code(pid))
        server.wait()
        say("done", state=server.stats()["state"])


def test_a_child_of_the_server_that_exits_by_the_book_does_not_stop_it(start: Start) -> None:
    server = start(serve_and_fork_by_the_book, name="train")
    with feedline.attach("train", batch_size=16) as feed:
        assert server.expect("forked")["code"] == 0
        for epoch in range(2):
            assert read(feed) == expected(epoch, SAMPLES, 16)
    assert server.expect("done")["state"] == "ended"


class Forking(Numbered):
    """A loader that forks in mid-epoch; the child comes back from there as the parent does."""

    def __init__(self, how: str) -> None:
        super().__init__(SAMPLES, 10)
        self.how = how
        self.parent = os.getpid()
        self.child = 0

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(super().__iter__()):
            if number == 3 and not self.child:
                self.child = os.fork()
            if os.getpid() != self.parent and self.how == "raises":
                raise KeyboardInterrupt
            yield batch


def serve_forking(name: str, how: str) -> None:
    loader = Forking(how)
    try:
        feedline.serve(loader, name, epochs=2, ring=60)
    finally:
        if os.getpid() != loader.parent:
            os._exit(7)
    say("done", code=exit_code(loader.child))


@pytest.mark.parametrize("how", ["raises", "yields"])
def test_a_child_of_the_loader_that_comes_back_does_not_serve(start: Start, how: str) -> None:
    server = start(serve_forking, name="train", how=how)
    with feedline.attach("train", batch_size=16) as feed:
        for epoch in range(2):
            assert read(feed) == expected(epoch, SAMPLES, 16)
    assert server.expect("done")["code"] == 7


class ForkingOften(Numbered):
    """A loader that forks before each batch; the children come back from there, too."""

    def __init__(self) -> None:
        super().__init__(SAMPLES, 10)
        self.parent = os.getpid()
        self.children: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            if os.getpid() == self.parent and (child := os.fork()):
                self.children.append(child)
            yield batch


def serve_forking_often(name: str) -> None:
    loader = ForkingOften()
    try:
        feedline.serve(loader, name, epochs=20, ring=60)
    finally:
        if os.getpid() != loader.parent:
            os._exit(7)
    say("done", codes=[exit_code(child) for child in loader.children])


def test_a_child_of_the_loader_does_not_wait_for_a_lock_that_nobody_has(start: Start) -> None:
    """Another thread of the server may have it while the loader forks: it answers questions."""
    server = start(serve_forking_often, name="train")
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(feedline.FeedlineError):
                pool_of_feed("train")

    asking = [threading.Thread(target=ask) for _ in range(2)]
    with feedline.attach("train", batch_size=16) as feed:
        for thread in asking:
            thread.start()
        try:
            for epoch in range(20):
                assert read(feed) == expected(epoch, SAMPLES, 16)
            codes = server.expect("done")["codes"]
        finally:
            over.set()
    assert set(codes) == {7}
    for thread in asking:
        thread.join()
