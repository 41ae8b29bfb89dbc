"""A server without a descriptor left: it waits for better times, quietly, and serves meanwhile."""

from __future__ import annotations

import os
import resource
import socket
import time
from pathlib import Path

import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.loaders import Numbered
from support.reading import expected, read

pytestmark = pytest.mark.alone

LIMIT = 64


def serve_with_few_descriptors() -> None:
    with feedline.Server(Numbered(1000, 10), "train", ring=60) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        say("ready")
        while hear() == "stats":
            say("stats", stats=server.stats())


def cpu_secs(pid: int) -> float:
    """Give the time that all its threads have spent, system calls included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_more_connections_than_descriptors(start: Start, folder: Path) -> None:
    """The listener stays ready all the time; that is no reason to try without a pause."""
    server = start(serve_with_few_descriptors)
    server.expect("ready")
    with feedline.attach("train", batch_size=7) as early:
        epoch = read(early).keys[0] // 1_000_000
        crowd = []
        for _ in range(LIMIT + 16):
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(str(folder / "train.sock"))
            crowd.append(peer)
        # The consumer that was there first reads on.
        assert read(early) == expected(epoch + 1, 1000, 7)
        # Nothing happens now, so nothing may be spent.
        before, begun = cpu_secs(server.pid), time.monotonic()
        time.sleep(0.6)  # pause: a window to measure in
        spent, passed = cpu_secs(server.pid) - before, time.monotonic() - begun
        assert spent < passed / 2
        for peer in crowd:
            peer.close()
    with feedline.attach("train", batch_size=700, timeout_secs=60) as late:
        got = read(late)
        assert got == expected(got.keys[0] // 1_000_000, 1000, 700)
    assert server.ask("stats")["stats"]["state"] == "running"
