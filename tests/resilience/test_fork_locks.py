"""A process forks while its other threads are busy with a feed: the child never hangs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import torch

import feedline
from conftest import Start
from feedline import _fork_guard, _start_record
from feedline._rng_state import RngStates
from feedline._seeding import seed_before_making, seed_epoch
from resilience.test_fork import in_a_fork
from support.child import say
from support.loaders import Gated, Numbered
from support.reading import is_exact
from support.waiting import TIMEOUT_SECS, eventually


def outcome(pid: int) -> str:
    """How a forked child ended; a child that hangs is killed."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return f"exit {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.005)  # pause: polls
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


def go_on_with_the_iterator(feed: feedline.Feed, iterator: Iterator[Any]) -> bool:
    try:
        next(iterator)
    except feedline.FeedlineError as error:
        return "parent" in str(error)
    return False


def ask_about_the_feed(feed: feedline.Feed, iterator: Iterator[Any]) -> bool:
    return feed.stats()["server_pid"] > 0 and feed.epoch >= 0 and bool(feed)


def close_the_feed(feed: feedline.Feed, iterator: Iterator[Any]) -> bool:
    feed.close()
    return True


def iterate_the_feed(feed: feedline.Feed, iterator: Iterator[Any]) -> bool:
    return is_exact(next(iter(feed)))


def attach_anew(feed: feedline.Feed, iterator: Iterator[Any]) -> bool:
    with feedline.attach("train", batch_size=10) as own:
        return is_exact(next(iter(own)))


ACTIONS: dict[str, Callable[[feedline.Feed, Iterator[Any]], bool]] = {
    action.__name__: action
    for action in (
        go_on_with_the_iterator,
        ask_about_the_feed,
        close_the_feed,
        iterate_the_feed,
        attach_anew,
    )
}


def fork_beside_a_waiting_thread() -> None:
    """Prefetch on a thread, which holds the iterator while it waits, and fork beside it."""
    loader = Gated(20, 10, at=10)
    with feedline.Server(loader, "train", epochs=1) as server:
        feed = feedline.attach("train", batch_size=10)
        iterator = iter(feed)
        assert is_exact(next(iterator))
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.extend(iterator))
        thread.start()
        # It counts its waiting from within.
        eventually(lambda: server.stats()["consumers"][0]["waited_secs"] > 0.05)
        outcomes = {}
        for name, action in ACTIONS.items():
            outcomes[name] = outcome(in_a_fork(partial(action, feed, iterator)))
        loader.gate.set()
        thread.join()
        say("done", outcomes=outcomes, exact=[is_exact(batch) for batch in got])


def test_a_thread_waits_in_the_iterator(start: Start) -> None:
    """The lock that it holds is for ever locked in the child."""
    report = start(fork_beside_a_waiting_thread).expect("done")
    assert report["outcomes"] == dict.fromkeys(ACTIONS, "exit 0")
    # The parent's own thread goes on where it was.
    assert report["exact"] == [True]


def fork_beside_threads(work: Callable[[], None], act: Callable[[], bool]) -> None:
    """Fork again and again while two threads are at work; each child acts."""
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            work()

    threads = [threading.Thread(target=go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    outcomes = [outcome(in_a_fork(act)) for _ in range(30)]
    over.set()
    for thread in threads:
        thread.join()
    say("done", outcomes=outcomes)


def fork_beside_threads_that_come_and_go() -> None:
    def come_and_go() -> None:
        with feedline.attach("train", batch_size=7) as feed:
            assert is_exact(next(iter(feed)))

    def attach() -> bool:
        with feedline.attach("train", batch_size=10) as own:
            return is_exact(next(iter(own))) and len(feedline.feeds()) == 1

    with feedline.Server(Numbered(100, 10), "train"):
        fork_beside_threads(come_and_go, attach)


def check_that_no_child_hangs(start: Start, role: Callable[[], None]) -> None:
    assert start(role).expect("done")["outcomes"] == ["exit 0"] * 30


def test_threads_attach_and_close_meanwhile(start: Start) -> None:
    """What they hold for a moment, lists of leases and of names, is free in the child."""
    check_that_no_child_hangs(start, fork_beside_threads_that_come_and_go)


def fork_beside_threads_that_list_feeds() -> None:
    with feedline.Server(Numbered(100, 10), "train"):

        def list_feeds() -> None:
            # The error names what runs; it is made without the GIL.
            with contextlib.suppress(feedline.FeedNotFoundError):
                feedline.attach("nowhere", timeout_secs=0.0)
            feedline.feeds()

        def serve_another() -> bool:
            with feedline.Server(Numbered(100, 10), "other"):
                return [info.name for info in feedline.feeds()] == ["other", "train"]

        fork_beside_threads(list_feeds, serve_another)


def test_threads_list_feeds_meanwhile(start: Start) -> None:
    """The table of the names that this process serves is the child's own: free, and empty."""
    check_that_no_child_hangs(start, fork_beside_threads_that_list_feeds)


def can_be_started() -> bool:
    lock = _start_record.try_lock("train")
    if lock is not None:
        lock.close()
    return lock is not None


def fork_while_a_server_is_being_started() -> None:
    lock = _start_record.try_lock("train")
    assert lock is not None
    child = in_a_fork(lambda: threading.Event().wait())
    lock.close()
    # The child needs a moment to let go of it.
    eventually(can_be_started)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    say("locked")
    _start_record.lock_path("train").unlink()


def test_a_child_does_not_keep_the_lock_of_a_start(start: Start) -> None:
    """Nobody could start that feed's server until the child ends."""
    start(fork_while_a_server_is_being_started).expect("locked")


class SlowAttributes:
    """Stands for a module whose attributes take long to look up."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        self.asked.set()
        self.may_go_on.wait()
        return getattr(self.module, name)


def fork_while_a_type_is_looked_up() -> None:
    import numpy

    slow = SlowAttributes(numpy)
    sys.modules["numpy"] = cast(ModuleType, slow)

    def serve() -> bool:
        slow.may_go_on.set()
        with (
            feedline.Server([{"x": numpy.arange(3)}], "child", epochs=1),
            feedline.attach("child") as feed,
        ):
            return [batch["x"].tolist() for batch in feed] == [[0, 1, 2]]

    with feedline.Server([{"x": numpy.arange(3)}], "parent", epochs=1) as server:
        slow.asked.wait()
        say("forked", outcome=outcome(in_a_fork(serve)))
        slow.may_go_on.set()
        server.stop()


def test_a_thread_looks_up_a_type_meanwhile(start: Start) -> None:
    """What is looked up once and then remembered is not locked while it is looked up."""
    assert start(fork_while_a_type_is_looked_up).expect("forked")["outcome"] == "exit 0"


class Held:
    """Something that a thread does with a lock in hand, and that takes for as long as it must."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entered, self.may_go_on = threading.Event(), threading.Event()

    def stay(self) -> None:
        with self.lock:
            self.entered.set()
            self.may_go_on.wait()


def is_waiting_to_fork(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    return frame is not None and frame.f_code is _fork_guard._before_fork.__code__


def fork_while(work: Callable[[], object], held: Held, act: Callable[[], bool]) -> None:
    """Fork while another thread is held in its work; it is let go once the fork waits for it."""
    happened: list[str] = []
    main = threading.get_ident()

    def let_go_once_the_fork_waits() -> None:
        eventually(lambda: bool(happened) or is_waiting_to_fork(main))
        happened.append("let go")
        held.may_go_on.set()

    def act_in_child() -> bool:
        held.may_go_on.set()
        return act()

    threads = [threading.Thread(target=one) for one in (work, let_go_once_the_fork_waits)]
    threads[0].start()
    held.entered.wait()
    os.register_at_fork(after_in_parent=lambda: happened.append("forked"))
    threads[1].start()
    child = in_a_fork(act_in_child)
    say("forked", happened=happened)
    say("ended", outcome=outcome(child))
    for thread in threads:
        thread.join()


def fork_while_a_thread(does: str, folder: str) -> None:
    """A function of torch's takes a lock and holds it for long, as ``manual_seed`` may."""
    states = RngStates(Path(folder, "rng"), [], {})
    name, work = {
        "seeds": ("manual_seed", lambda: seed_before_making(7)),
        "begins an epoch": ("manual_seed", lambda: seed_epoch(7, 0, [])),
        "saves states": ("get_rng_state", lambda: states.begin(0)),
    }[does]
    held, function = Held(), getattr(torch, name)

    def slow(*args: Any) -> Any:
        held.stay()
        return function(*args)

    def seed() -> bool:
        seed_epoch(7, 1, [])
        return not held.lock.locked()

    setattr(torch, name, slow)
    fork_while(work, held, seed)


@pytest.mark.parametrize("does", ["seeds", "begins an epoch", "saves states"])
def test_a_fork_waits_while_a_thread_seeds(start: Start, does: str, tmp_path: Path) -> None:
    """Otherwise a DataLoader's worker hangs, in its own seeding, for what another feed did."""
    child = start(fork_while_a_thread, does=does, folder=str(tmp_path))
    assert child.expect("forked")["happened"] == ["let go", "forked"]
    assert child.expect("ended")["outcome"] == "exit 0"


class SlowImport(Held):
    """Finds no module, and takes its time for that with one of them."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def find_spec(self, name: str, *_: Any) -> None:
        if name == self.module:
            self.stay()


def fork_while_a_thread_attaches() -> None:
    held = SlowImport("feedline._rows")
    sys.meta_path.insert(0, cast(Any, held))

    def attach() -> bool:
        with feedline.attach("train", batch_size=10) as own:
            return is_exact(next(iter(own)))

    with feedline.Server(Numbered(100, 10), "train"):
        fork_while(attach, held, attach)


def test_a_fork_waits_while_a_thread_imports_the_torch_face(start: Start) -> None:
    """The first one to attach does, where torch is in use; no child could import it any more."""
    child = start(fork_while_a_thread_attaches)
    assert child.expect("forked")["happened"] == ["let go", "forked"]
    assert child.expect("ended")["outcome"] == "exit 0"


def take_a_first_batch() -> None:
    with feedline.Server(Numbered(100, 10), "train"):
        feed = feedline.attach("train", batch_size=10)
        before = set(sys.modules)
        assert is_exact(next(iter(feed)))
        say("taken", imported=sorted(set(sys.modules) - before))
        feed.close()


def test_taking_a_batch_imports_nothing(start: Start) -> None:
    """A fork while a prefetch thread imports leaves that module locked for ever in the child."""
    assert start(take_a_first_batch).expect("taken")["imported"] == []


def ask_for_the_server_in_a_child() -> None:
    with feedline.Server(Numbered(100, 10), "train"):

        def ask() -> bool:
            server = os.getppid()
            with pytest.raises(feedline.FeedlineError, match=f"pid {server}"):
                feedline.Server(Numbered(100, 10), "train").start()
            return [info.pid for info in feedline.feeds()] == [server]

        say("asked", outcome=outcome(in_a_fork(ask)))
        # The lock that says who serves is the parent's still.
        say("feeds", pids=[info.pid for info in feedline.feeds()], pid=os.getpid())


def test_a_child_of_the_server_knows_who_serves(start: Start) -> None:
    """It has the parent's memory, list of names included, but serves nothing itself."""
    child = start(ask_for_the_server_in_a_child)
    assert child.expect("asked")["outcome"] == "exit 0"
    report = child.expect("feeds")
    assert report["pids"] == [report["pid"]]


def fork_beside_threads_that_ask() -> None:
    with feedline.Server(Numbered(100, 10), "train") as server:

        def ask() -> None:
            server.stats()

        def ask_in_the_child() -> bool:
            with pytest.raises(feedline.FeedlineError, match="parent process"):
                server.stats()
            return True

        fork_beside_threads(ask, ask_in_the_child)


def test_a_child_of_the_server_is_told_to_ask_its_parent(start: Start) -> None:
    """The lock behind the numbers may be held by a thread that the child doesn't have."""
    check_that_no_child_hangs(start, fork_beside_threads_that_ask)


def outlive_the_server() -> None:
    with feedline.Server(Numbered(100, 10), "train"):
        server = os.pidfd_open(os.getpid())

        def ask() -> bool:
            say("watching")
            # Not until the child has another parent: that may be before the last thread is gone.
            assert select.select([server], [], [], TIMEOUT_SECS)[0]
            left = [info.pid for info in feedline.feeds()]
            with feedline.Server(Numbered(100, 10), "train", epochs=1):
                now = [info.pid for info in feedline.feeds()]
                say("orphaned", left=left, serves=now == [os.getpid()])
            say("freed")
            return True

        outcome(in_a_fork(ask))


def test_a_child_that_outlives_the_server_can_take_its_name(start: Start) -> None:
    server = start(outlive_the_server)
    server.expect("watching")
    server.kill()
    report = server.expect("orphaned")
    assert report["left"] == []
    assert report["serves"]
    server.expect("freed")
