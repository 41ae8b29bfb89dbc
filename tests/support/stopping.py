"""Stopping processes for a while: all their threads, and only by one stopper at a time.

A soak (`tests/soak`) stops processes of tests at random moments and has them go on; one that a test
has stopped must stay so. Both therefore do it here: in the folder FEEDLINE_SOAK a test leaves a
file for each process that it has stopped, and the soak leaves those processes alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from support.waiting import eventually

SOAK = "FEEDLINE_SOAK"


def stop(pid: int) -> None:
    """Stop a process. The signal itself is only a request: each thread runs on until it sees it."""
    with _in_a_soak() as soak:
        if soak:
            _claim(soak, pid).touch()
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: is_stopped(pid))


def resume(pid: int) -> None:
    """Have a process go on."""
    with _in_a_soak() as soak:
        if soak:
            _claim(soak, pid).unlink(missing_ok=True)
        os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped, by a signal or by a debugger."""
    before = _states_of_threads(pid)
    # A thread may have started another before it stopped.
    is_complete = before.keys() == _states_of_threads(pid).keys()
    # The main thread may have ended before the others.
    alive = {state for state in before.values() if state not in "ZX"}
    return is_complete and bool(alive) and alive <= {"T", "t"}


def stop_in_passing(pid: int, soak: Path) -> bool:
    """Stop a process unknown to its test; False if the test has stopped it, or it ended."""
    with _locked(soak), contextlib.suppress(ProcessLookupError):
        if not _claim(soak, pid).exists() and not is_stopped(pid):
            os.kill(pid, signal.SIGSTOP)
            return True
    return False


def resume_in_passing(pid: int, soak: Path) -> None:
    """Have it go on, unless a test has stopped it meanwhile."""
    with _locked(soak), contextlib.suppress(ProcessLookupError):
        if not _claim(soak, pid).exists():
            os.kill(pid, signal.SIGCONT)


def _states_of_threads(pid: int) -> dict[str, str]:
    states = {}
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            # It may end meanwhile.
            with contextlib.suppress(OSError):
                states[task.name] = (task / "stat").read_text().rpartition(")")[2].split()[0]
    return states


@contextlib.contextmanager
def _in_a_soak() -> Iterator[Path | None]:
    if SOAK not in os.environ:
        yield None
        return
    soak = Path(os.environ[SOAK])
    with _locked(soak):
        yield soak


@contextlib.contextmanager
def _locked(soak: Path) -> Iterator[None]:
    with (soak / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _claim(soak: Path, pid: int) -> Path:
    return soak / f"stopped-{pid}"
