"""A peer that asks and asks, and never reads the answers: it costs the others nothing."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from pathlib import Path

import feedline
from conftest import Start
from support import roles
from support.reading import expected, read
from support.waiting import eventually

HELLO, STATS = 0, 3
MB = 1 << 20


def frame(message: bytes) -> bytes:
    return struct.pack("<IB", len(message), 0) + message


def number(value: int) -> bytes:
    """Encode as postcard does: seven bits to a byte, the lowest first."""
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def visit(path: Path) -> socket.socket:
    """Connect and say hello as a control client, in the version that the server speaks."""
    magic = number(int.from_bytes(b"feed", "little"))
    for version in range(1, 100):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(str(path))
        peer.sendall(frame(bytes([HELLO]) + magic + number(version) + b"\0"))
        try:
            # A peer that is refused gets one answer at most.
            for _ in range(2):
                peer.sendall(frame(bytes([STATS])))
                assert peer.recv(1 << 16)
            return peer
        except (OSError, AssertionError):
            peer.close()
    raise AssertionError("the server speaks none of a hundred versions")


def memory_of(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Flood:
    """Asks for all it is worth on a thread, until it is dropped, or not listened to any more."""

    def __init__(self, peer: socket.socket, *, most_bytes: int) -> None:
        self.peer = peer
        self.most_bytes = most_bytes
        self.sent = 0
        self.over = threading.Event()
        self.silenced = threading.Event()
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        question = frame(bytes([STATS]))
        self.peer.setblocking(False)
        ready = time.monotonic()
        pending = b""
        while not self.over.is_set() and self.sent < self.most_bytes:
            if time.monotonic() - ready > 0.5:
                self.silenced.set()
            if not select.select([], [self.peer], [], 0.05)[1]:
                continue
            try:
                pending = pending or question * 2000
                sent = self.peer.send(pending)
            except BlockingIOError:
                continue
            except OSError:
                break
            self.sent += sent
            pending = pending[sent:]
            ready = time.monotonic()
        self.silenced.set()

    def end(self) -> None:
        self.over.set()
        self.thread.join()
        self.peer.close()


def test_questions_without_end_and_answers_not_read(start: Start, folder: Path) -> None:
    server = start(roles.serve, loader_args=[1000, 10], epochs=1, ring=60)
    server.expect("ready")
    with feedline.attach("train", batch_size=7) as early:
        flood = Flood(visit(folder / "train.sock"), most_bytes=8 * MB)
        try:
            before = memory_of(server.pid)
            eventually(lambda: flood.sent > 0)
            with feedline.attach("train", batch_size=7, timeout_secs=60) as late:
                assert late.stats()["server_pid"] == server.pid
            assert read(early) == expected(0, 1000, 7)
            eventually(flood.silenced.is_set)
            assert memory_of(server.pid) - before < 8 * MB
        finally:
            flood.end()
