"""What a server and a consumer cost doesn't grow: not with joins and leaves, not with epochs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.processes import Child
from support.waiting import eventually

KB = 1 << 10
# Python takes an arena of 1 MB now and then; 150 bytes lost with each of 10,000 joins are more.
SPARE_BYTES = 1400 * KB


class Usage(NamedTuple):
    """What a process holds."""

    descriptors: int
    threads: int
    own_bytes: int
    memfd_bytes: int

    def __str__(self) -> str:
        memory = f"{self.own_bytes / 1e6:.2f} MB, {self.memfd_bytes / 1e6:.2f} MB of memfds"
        return f"{self.descriptors} descriptors, {self.threads} threads, {memory}"


def usage_of(pid: int) -> Usage:
    process = Path("/proc") / str(pid)
    memfds: dict[int, int] = {}
    descriptors = 0
    for descriptor in (process / "fd").iterdir():
        try:
            target, status = os.readlink(descriptor), descriptor.stat()
        except FileNotFoundError:
            continue
        descriptors += 1
        if target.startswith("/memfd:"):
            memfds[status.st_ino] = status.st_blocks * 512
    # Its own memory: what it shares with other Pythons comes and goes with them.
    lines = (process / "status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return Usage(descriptors, _threads_of(process), own * KB, sum(memfds.values()))


def _threads_of(process: Path) -> int:
    names = []
    for task in (process / "task").iterdir():
        # It may end while we read.
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    # A thread that logs has another one deliver its lines, from its first line on.
    threads = len(names) - names.count("feedline-log")
    assert names.count("feedline-log") <= threads
    return threads


def settled(server: Child) -> Usage:
    """Give a server's usage when nobody is attached."""
    eventually(lambda: not server.ask("stats")["stats"]["consumers"])
    return usage_of(server.pid)


def assert_flat(before: Usage, after: Usage, what: str) -> None:
    print(f"{what}: {before} → {after}")
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads
    assert after.own_bytes <= before.own_bytes + SPARE_BYTES
    assert after.memfd_bytes <= before.memfd_bytes


def assert_settled(before: Usage, server: Child, what: str) -> None:
    # A producer that sleeps lets go of those who have left when it wakes up.
    eventually(lambda: settled(server).descriptors <= before.descriptors)
    assert_flat(before, settled(server), what)


def join_and_leave(times: int, batch_size: int) -> None:
    with feedline.attach("train", batch_size=batch_size) as feed:
        for _ in range(times):
            next(iter(feed))


def test_a_server_over_ten_thousand_joins_and_leaves(start: Start) -> None:
    server = start(roles.serve, loader_args=[1000, 10], ring=100)
    server.expect("ready")
    join_and_leave(1_000, 7)
    before = settled(server)
    join_and_leave(10_000, 7)
    assert_settled(before, server, "a server, 10,000 joins and leaves")


def test_a_server_over_hundreds_of_connections(start: Start) -> None:
    server = start(roles.serve, loader_args=[1000, 10], ring=100)
    server.expect("ready")
    for _ in range(100):
        join_and_leave(1, 7)
    before = settled(server)
    for _ in range(800):
        join_and_leave(1, 7)
    assert_settled(before, server, "a server, 800 consumers one after the other")


def read_many_epochs(epochs: int) -> None:
    feed = feedline.attach("train", batch_size=7)
    for goal in (epochs // 10, epochs):
        done = 0
        while done < goal:
            done += 1
            for batch in feed:
                del batch
        say("read", epochs=goal, usage=usage_of(os.getpid()))
        hear()
    feed.close()


def test_a_server_and_a_consumer_over_a_thousand_epochs(start: Start) -> None:
    server = start(roles.serve, loader_args=[100, 10], ring=100, wait_for=2)
    server.expect("ready")
    consumers = [start(read_many_epochs, epochs=1000) for _ in range(2)]
    befores = [Usage(*consumer.expect("read")["usage"]) for consumer in consumers]
    before = usage_of(server.pid)
    for consumer in consumers:
        consumer.tell("go on")
    afters = [Usage(*consumer.expect("read")["usage"]) for consumer in consumers]
    assert_flat(before, usage_of(server.pid), "a server, 1,000 epochs")
    for first, last in zip(befores, afters, strict=True):
        assert_flat(first, last, "a consumer, 1,000 epochs")


def join_and_leave_often(times: int) -> None:
    join_and_leave(times // 10, 7)
    before = usage_of(os.getpid())
    join_and_leave(times, 7)
    assert_flat(before, usage_of(os.getpid()), "a consumer, 10,000 joins and leaves")
    say("done")


def test_a_consumer_over_ten_thousand_joins_and_leaves(start: Start) -> None:
    server = start(roles.serve, loader_args=[1000, 10], ring=100)
    server.expect("ready")
    start(join_and_leave_often, times=10_000).expect("done")
