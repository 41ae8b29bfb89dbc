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
import roles
from child import say
from conftest import Start
from loaders import Numbered, NumberedDataset
from reading import expected, is_exact, keys_of, read

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
