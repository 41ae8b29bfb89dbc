"""Scenario 14: a consumer forks; whatever the child does, the parent's batches stay right."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import feedline
from conftest import Start
from support.child import say
from support.loaders import Numbered, NumberedDataset
from support.reading import expected, is_exact, keys_of, read

SAMPLES = 2000
BATCH = 7


def in_a_fork(action: Callable[[], object]) -> int:
    """Run the action in a forked child, which exits with 0 if it gave something true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            # Whatever happened, the child must not run on as a second pytest.
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_through_an_epoch(name: str, how: str) -> None:
    """Fork every few batches, do something in the child, and check every byte in the parent."""
    feed = feedline.attach(name, batch_size=BATCH)
    held: list[Any] = []
    keys: list[int] = []
    codes: list[int] = []
    reading: list[int] = []
    iterator = iter(feed)
    for number, batch in enumerate(iterator):
        held.append(batch)
        keys += keys_of(batch)
        if number % 40 == 39:
            pid = FORKS[how](held, feed, iterator)
            # A child that reads the feed needs the parent to go on, so that the ring does.
            if how in READING:
                reading.append(pid)
            else:
                codes.append(exit_code(pid))
        if len(held) > 3:
            assert is_exact(held.pop(0))
    codes += map(exit_code, reading)
    say("done", keys=keys, codes=codes, exact=all(is_exact(batch) for batch in held))


def touch_and_exit_at_once(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    return in_a_fork(lambda: all(is_exact(batch) for batch in held))


def drop_and_exit_at_once(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    def drop() -> bool:
        held.clear()
        gc.collect()
        return True

    return in_a_fork(drop)


def write_drop_and_exit_by_the_book(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    """`sys.exit` unwinds: the child's copies of every object of ours are finalised in it."""
    pid = os.fork()
    if pid == 0:
        for batch in held:
            batch[0][:] = 0
        held.clear()
        sys.exit(0)
    return pid


def close_the_inherited_feed(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    def close() -> bool:
        feed.close()
        return True

    return in_a_fork(close)


def iterate_the_inherited_feed(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    """Take a place of the child's own, and nothing of the parent's."""
    return in_a_fork(lambda: is_exact(next(iter(feed))))


def go_on_with_the_inherited_iterator(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    """Ask for the parent's next batch: a clear error, not a hang and not the parent's samples."""

    def go_on() -> bool:
        try:
            next(iterator)
        except feedline.FeedlineError as error:
            return "parent" in str(error)
        return False

    return in_a_fork(go_on)


def attach_anew(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    def attach() -> bool:
        with feedline.attach("train", batch_size=BATCH) as own:
            return is_exact(next(iter(own)))

    return in_a_fork(attach)


def run_a_subprocess(held: list[Any], feed: feedline.Feed, iterator: Any) -> int:
    done = subprocess.run([sys.executable, "-S", "-c", "pass"], check=False)
    return in_a_fork(lambda: done.returncode == 0)


FORKS = {
    fork.__name__: fork
    for fork in (
        touch_and_exit_at_once,
        drop_and_exit_at_once,
        write_drop_and_exit_by_the_book,
        close_the_inherited_feed,
        iterate_the_inherited_feed,
        go_on_with_the_inherited_iterator,
        attach_anew,
        run_a_subprocess,
    )
}


READING = {"iterate_the_inherited_feed", "attach_anew"}


@pytest.mark.parametrize("how", sorted(FORKS))
def test_a_child_of_a_consumer_does_not_disturb_it(start: Start, how: str) -> None:
    loader = Numbered(SAMPLES, 10, width=1501)
    with feedline.Server(loader, "train", epochs=2, wait_for=2, ring=60) as server:
        forker = start(fork_through_an_epoch, name="train", how=how)
        with feedline.attach("train", batch_size=16) as feed:
            assert read(feed) == expected(0, SAMPLES, 16)
            report = forker.expect("done")
            assert set(report["codes"]) == {0}, forker.stderr
            assert len(report["codes"]) == SAMPLES // BATCH // 40
            assert report["keys"] == list(range(SAMPLES))
            assert report["exact"]
            assert forker.exit_code() == 0
            assert "Traceback" not in forker.stderr
            assert read(feed) == expected(1, SAMPLES, 16)
        assert server.stats()["samples"] == 2 * SAMPLES


def dataloader_workers_beside_a_feed(name: str, epochs: int) -> None:
    """Use a DataLoader with workers (for validation, say) while batches are held."""
    from torch.utils.data import DataLoader

    feed = feedline.attach(name, batch_size=16)
    dataset: Any = NumberedDataset(64)
    for _ in range(epochs):
        keys: list[int] = []
        exact = True
        held: list[Any] = []
        for number, batch in enumerate(feed):
            held.append(batch)
            keys += keys_of(batch)
            if number % 50 == 10:
                validation = DataLoader(dataset, batch_size=16, num_workers=2)
                exact = exact and read(validation) == expected(0, 64, 16)
            if len(held) > 2:
                exact = exact and is_exact(held.pop(0))
        say("epoch", keys=keys, exact=exact and all(is_exact(batch) for batch in held))
    say("done")


def test_a_dataloader_with_workers_in_the_consumers_process(start: Start) -> None:
    with feedline.Server(Numbered(SAMPLES, 10), "train", epochs=2, ring=100):
        child = start(dataloader_workers_beside_a_feed, name="train", epochs=2)
        for epoch in range(2):
            report = child.expect("epoch")
            assert report["exact"]
            assert report["keys"] == expected(epoch, SAMPLES, 16).keys
        child.expect("done")
