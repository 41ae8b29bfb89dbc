"""The processes of one trial: started, watched, measured, and always ended.

Every process leads a group of its own (so that workers which it starts end with it), dies with this
one, and is killed by an alarm of its own should everything else fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .counters import Counters

_PR_SET_PDEATHSIG = 1
_GRACE_SECS = 2.0
_SHM = Path("/dev/shm")
_ROOT = Path(__file__).resolve().parents[1]


class TrialFailed(Exception):
    """A process of the trial ended, or made no progress in time. The text goes into the table."""


def cpu_secs(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond; 0 once it is gone.

    The clock of another process is `(~pid << 3) | 2` (what `clock_getcpuclockid` computes);
    /proc/PID/stat would give it in steps of 10 ms.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


@dataclass(frozen=True)
class TrialProcess:
    """One process of a trial."""

    role: str
    slot: int
    pid: int
    ended: Callable[[], bool]

    def cpu_secs(self) -> float:
        return cpu_secs(self.pid)

    def group_cpu_secs(self) -> float:
        """CPU time of the process and of those that it started, as far as they are alive."""
        return sum(cpu_secs(pid) for pid in _group(self.pid))

    def memory_bytes(self) -> dict[str, int]:
        """Its proportional share of memory (`Pss`) and, beside it, its page tables (`VmPTE`)."""
        found = {}
        for file, key in (("smaps_rollup", "Pss"), ("status", "VmPTE")):
            text = Path(f"/proc/{self.pid}/{file}").read_text()
            match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
            found[key] = int(match.group(1)) * 1024 if match else 0
        return found


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):
            if os.getpgid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found


def bind_to_parent(parent: int, limit_secs: float) -> None:
    """Make this child a group of its own that dies with the parent, or after `limit_secs`."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_secs)


def _run_role(
    parent: int,
    limit: float,
    counters: Counters,
    slot: int,
    function: Callable[..., None],
    args: Any,
) -> None:
    bind_to_parent(parent, limit)
    try:
        function(counters, slot, *args)
    except BaseException as error:
        # Once the trial is over, a consumer that misses its producer is to be expected.
        if not counters.stopped:
            first = str(error).strip().split("\n")[0]
            counters.fail(slot, f"{type(error).__name__}: {first}")


class TrialProcesses:
    """Owns a trial's processes. Leaving the `with` block ends them all."""

    def __init__(self, *, limit_secs: float) -> None:
        self.counters = Counters()
        self.all: list[TrialProcess] = []
        self.limit_secs = limit_secs
        self._fork = multiprocessing.get_context("fork")
        self._shm_before = _torch_segments()

    def fork(self, role: str, slot: int, function: Callable[..., None], *args: Any) -> None:
        """Start `function(counters, slot, *args)` in a copy of this process, which has torch."""
        process = self._fork.Process(
            target=_run_role,
            args=(os.getpid(), self.limit_secs, self.counters, slot, function, args),
        )
        process.start()
        assert process.pid is not None
        self.all.append(TrialProcess(role, slot, process.pid, lambda: not process.is_alive()))

    def execute(self, role: str, slot: int, command: Sequence[str], log: Path) -> None:
        """Start a fresh interpreter; it finds the counters behind the descriptor it is told of."""
        tail = [str(self.counters.fd), str(slot), str(os.getpid()), str(self.limit_secs)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *tail],
                pass_fds=[self.counters.fd],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=_ROOT,
            )
        self.all.append(TrialProcess(role, slot, process.pid, lambda: process.poll() is not None))

    def with_role(self, role: str) -> list[TrialProcess]:
        return [process for process in self.all if process.role == role]

    def check(self) -> None:
        for process in self.all:
            error = self.counters.error(process.slot)
            if error:
                raise TrialFailed(f"{process.role}: {error}")
            if process.ended():
                raise TrialFailed(f"{process.role} ended without a word")

    def wait_for_counts(self, role: str, least: int, *, timeout_secs: float) -> None:
        """Until each process of this role has counted to `least`."""
        end = time.monotonic() + timeout_secs
        slots = [process.slot for process in self.with_role(role)]
        while (lowest := min(self.counters.count(slot) for slot in slots)) < least:
            self.check()
            if time.monotonic() > end:
                raise TrialFailed(f"{role} at {lowest} of {least} after {timeout_secs:.0f} s")
            time.sleep(0.01)

    def __enter__(self) -> TrialProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.counters.stop()
        end = time.monotonic() + _GRACE_SECS
        while time.monotonic() < end and not all(process.ended() for process in self.all):
            time.sleep(0.01)
        for process in self.all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        while not all(process.ended() for process in self.all):
            time.sleep(0.005)
        self.counters.close()
        _sweep(self._shm_before)


def _torch_segments() -> set[Path]:
    return set(_SHM.glob("torch_*"))


def _sweep(before: set[Path]) -> None:
    """Remove what killed torch processes left: `torch_<pid>_...` of a pid that is gone."""
    for path in _torch_segments() - before:
        pid = path.name.split("_")[1]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
