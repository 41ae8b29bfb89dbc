"""Ctrl-C answers at once wherever one waits, and the interpreter ends cleanly whatever lives."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import loaders, roles
from support.child import say
from support.loaders import Numbered
from support.processes import Child, all_wait_for, joined
from support.reading import read
from support.waiting import eventually

# That Ctrl-C is answered at once needs no clock: else a child would wait for an hour.


def wait_in_next(name: str) -> None:
    feed = feedline.attach(name, batch_size=10)
    iterator = iter(feed)
    next(iterator)
    say("waiting")
    next(iterator)


def wait_in_attach(name: str) -> None:
    say("waiting")
    feedline.attach(name, batch_size=10, timeout_secs=3600)


def wait_in_serve(name: str, loader: str, args: list[Any]) -> None:
    source = getattr(loaders, loader)(*args)

    class Telling:
        """Says when the server is under way."""

        def __iter__(self) -> Any:
            for number, batch in enumerate(source):
                if number == 1:
                    say("waiting")
                yield batch

    feedline.serve(Telling(), name, ring=60)


def wait_in_wait(name: str) -> None:
    with feedline.Server(Numbered(1000, 10), name, ring=60) as server:
        say("waiting")
        server.wait()


def interrupt(child: Child) -> None:
    child.expect("waiting")
    child.signal(signal.SIGINT)
    child.expect_error(KeyboardInterrupt)
    assert child.exit_code() == 1
    assert child.stderr == ""


def test_ctrl_c_while_waiting_for_data(start: Start) -> None:
    with feedline.Server(Numbered(1000, 10), "train", ring=60, wait_for=1) as server:
        slow = feedline.attach("train", batch_size=10)
        iterator = iter(slow)
        first = next(iterator)
        child = start(read_on, name="train")
        # The ring is empty for it, because another consumer stands still.
        eventually(lambda: all_wait_for(os.getpid(), server.stats()))
        child.signal(signal.SIGINT)
        child.expect_error(KeyboardInterrupt)
        assert child.exit_code() == 1
        assert child.stderr == ""
        # Nobody else notices.
        assert read([first]).exact
        assert len(read(iterator).keys) == 990
        assert server.stats()["state"] == "running"
        slow.close()


def read_on(name: str) -> None:
    for _ in feedline.attach(name, batch_size=10):
        pass


def test_ctrl_c_while_the_loader_is_stuck(start: Start) -> None:
    server = start(roles.serve, loader="Stuck", loader_args=[10, 10])
    server.expect("ready")
    child = start(wait_in_next, name="train")
    interrupt(child)


def hear_both_at_once() -> None:
    """Another thread takes the signal, so that it is the server's end that ends the wait."""
    server = feedline.Server(loaders.Stuck(10, 10), "train").start()
    batches = iter(feedline.attach("train", batch_size=10))
    next(batches)

    def end() -> None:
        eventually(lambda: server.stats()["consumers"][0]["waiting"])
        # Taken by this thread before the call returns.
        signal.raise_signal(signal.SIGINT)
        server.stop()

    threading.Thread(target=end).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    raised = None
    try:
        next(batches)
    except (KeyboardInterrupt, feedline.ServerLostError) as error:
        raised = type(error).__name__
    say("raised", what=raised)


def test_ctrl_c_goes_before_the_loss_of_a_server_that_heard_it_too(start: Start) -> None:
    assert start(hear_both_at_once).expect("raised")["what"] == "KeyboardInterrupt"


def test_ctrl_c_while_waiting_for_a_feed(start: Start) -> None:
    child = start(wait_in_attach, name="nowhere")
    interrupt(child)


@pytest.mark.parametrize(
    ("loader", "args"), [("Numbered", [100_000, 10]), ("Endless", [10]), ("Stuck", [20, 10])]
)
def test_ctrl_c_in_serve(start: Start, folder: Path, loader: str, args: list[Any]) -> None:
    """With the ring full and nobody there, and with a loader that sits in Python code."""
    child = start(wait_in_serve, name="train", loader=loader, args=args)
    child.expect("waiting")
    child.signal(signal.SIGINT)
    code = child.exit_code()
    # Either serve() returns, or the interrupt comes out of it; nothing else does.
    if code != 0:
        child.expect_error(KeyboardInterrupt)
    assert child.stderr == ""
    assert not list(folder.iterdir())


def test_ctrl_c_in_wait(start: Start, folder: Path) -> None:
    child = start(wait_in_wait, name="train")
    interrupt(child)
    assert not list(folder.iterdir())


class Cycle:
    """Dies only with the garbage collector, that is, at the interpreter's very end."""

    def __init__(self, batch: object) -> None:
        self.batch = batch
        self.itself = self


kept_in_a_module: list[object] = []


def end_with_everything_alive(name: str) -> None:
    gc.disable()
    feed = feedline.attach(name, batch_size=10)
    iterator = iter(feed)
    kept_in_a_module.extend([feed, iterator, next(iterator), next(iterator)[0][2:5]])
    Cycle(next(iterator))
    Cycle([feed, iterator])
    for batch in (next(iterator), next(iterator)):
        threading.Thread(target=_sleep_on, args=(batch,), daemon=True).start()
    say("ending")


def _sleep_on(batch: object) -> None:
    threading.Event().wait()
    del batch


def release_on_other_threads(name: str) -> None:
    """Every lease is dropped by a thread that didn't take it, some of them at the very end."""
    feed = feedline.attach(name, batch_size=10)
    threads = []
    for number, batch in enumerate(feed):
        thread = threading.Thread(target=_release_late, args=([batch], number))
        del batch
        thread.start()
        threads.append(thread)
        if number % 8 == 7:
            for one in threads:
                one.join()
            threads.clear()
    for one in threads:
        one.join()
    say("released", stats=feed.stats())
    last = threading.Thread(target=_release_late, args=([feed], 30))
    del feed
    last.start()
    # Not joined: the interpreter waits for it, and its lease ends while it does.


def _release_late(box: list[object], number: int) -> None:
    time.sleep(number % 4 * 0.005)  # pause: threads end in another order
    box.clear()


def end_with_a_server_running(name: str) -> None:
    server = feedline.Server(Numbered(1000, 10), name, ring=60)
    server.start()
    kept_in_a_module.append(server)
    feed = feedline.attach(name, batch_size=10)
    kept_in_a_module.extend([feed, next(iter(feed))])
    say("ending")


@pytest.mark.parametrize("how", [end_with_everything_alive, release_on_other_threads])
def test_the_interpreter_ends_with_batches_alive(start: Start, how: Any) -> None:
    with feedline.Server(Numbered(1000, 10), "train", ring=200) as server:
        child = start(how, name="train")
        assert child.exit_code() == 0, child.stderr
        assert child.stderr == ""
        # The server has let go of everything that the child held.
        with feedline.attach("train", batch_size=10) as feed:
            assert len(read(feed).keys) == 1000
            assert joined(server.stats()) <= 1


def test_released_leases_are_counted(start: Start) -> None:
    with feedline.Server(Numbered(1000, 10), "train", ring=200, epochs=1):
        child = start(release_on_other_threads, name="train")
        assert child.expect("released")["stats"]["leases"] == 0
        assert child.exit_code() == 0


def test_the_interpreter_ends_with_a_server_running(start: Start, folder: Path) -> None:
    child = start(end_with_a_server_running, name="train")
    child.expect("ending")
    assert child.exit_code() == 0
    assert child.stderr == ""
    assert not list(folder.iterdir())
