"""What makes a machine a bad one: others who compute, and processes that stop for a moment."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def stops(soak: Path, per_sec: float, seed: int) -> Iterator[None]:
    """Stop a process of the soak so many times a second, and have it go on."""
    over = threading.Event()
    thread = threading.Thread(target=_stop_some, args=(soak, per_sec, random.Random(seed), over))
    if per_sec > 0:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if per_sec > 0:
            thread.join()


def _stop_some(soak: Path, per_sec: float, chance: random.Random, over: threading.Event) -> None:
    while not over.wait(chance.expovariate(per_sec)):
        which, secs = chance.random(), chance.uniform(0.0, LONGEST_STOP_SECS)
        pids = [pid for pid in processes_with(str(soak)) if not _has_fault(pid)]
        if not pids:
            continue
        pid = pids[int(which * len(pids))]
        if stop_in_passing(pid, soak):
            over.wait(secs)
            resume_in_passing(pid, soak)


def _has_fault(pid: int) -> bool:
    """Whether it stops itself at a point, which is not to be mistaken for this."""
    with contextlib.suppress(OSError):
        return b"FEEDLINE_FAULT=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False
