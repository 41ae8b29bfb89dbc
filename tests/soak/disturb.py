"""What makes a machine a bad one: others who compute, and processes that stop for a moment."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from support.processes import processes_with
from support.stopping import resume_in_passing, stop_in_passing

LONGEST_STOP_SECS = 0.7

_BUSY = """
import ctypes, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with its parent
while True:
    pass
"""


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processes computing."""
    load = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in load:
            one.kill()
            one.wait()


class Stops:
    """While it is entered, a process of the soak is stopped now and then, and goes on again."""

    def __init__(self, soak: Path, per_sec: float, seed: int) -> None:
        self.count = 0
        self._soak = soak
        self._per_sec = per_sec
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._per_sec:
            return
        while not self._over.wait(self._chance.expovariate(self._per_sec)):
            which, secs = self._chance.random(), self._chance.uniform(0.0, LONGEST_STOP_SECS)
            pids = [pid for pid in processes_with(str(self._soak)) if not _has_fault(pid)]
            if pids and stop_in_passing(pid := pids[int(which * len(pids))], self._soak):
                self.count += 1
                self._over.wait(secs)
                resume_in_passing(pid, self._soak)


def _has_fault(pid: int) -> bool:
    """Whether it stops itself at a point, which is not to be mistaken for this."""
    with contextlib.suppress(OSError):
        return b"FEEDLINE_FAULT=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False
