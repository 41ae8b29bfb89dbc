"""What every test gets: a socket folder, a watchdog, and a check of what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.example_runs import Run, end, start_example
from support.processes import (
    TESTS,
    Child,
    children_of_this_process,
    processes_with,
    shared_memory_files,
)
from support.stopping import SOAK
from support.waiting import eventually

WATCHDOG_SECS = 180.0
# Most of what is in them starts processes, with or without a fixture that does.
PROCESS_FOLDERS = {
    *("access", "chaos", "cli", "dataloader", "documentation", "frameworks", "observing"),
    *("resilience", "sharing"),
}

Start = Callable[..., Child]


def pytest_configure(config: pytest.Config) -> None:
    """Give the processes that tests start signals and a path on which they find the tests."""
    # A shell or nohup has a job ignore signals, and its children would ignore what tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # This process goes on ignoring it; programs that it starts do not.
        signal.signal(signal.SIGHUP, lambda *_: None)
    # What tests start finds `support` and the tests' own functions, wherever it runs.
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    secs = config.getoption("timeout") or WATCHDOG_SECS
    # A thread, since a signal would wait for native code to come back; it dumps all stacks.
    method = config.getoption("timeout_method") or "thread"
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(secs, method=method))
        if _starts_processes(item):
            item.add_marker(pytest.mark.processes)


def _starts_processes(item: pytest.Item) -> bool:
    folder = item.path.relative_to(TESTS).parts[0]
    fixtures = {"start", "servers_leave"}.intersection(getattr(item, "fixturenames", ()))
    return folder in PROCESS_FOLDERS or bool(fixtures)


def _text(file: Path) -> str:
    """What a server printed, if it is that."""
    return file.read_text(errors="replace") if file.suffix == ".log" else ""


def _processes_left(path: Path, before: set[int]) -> list[int]:
    return sorted({*processes_with(str(path)), *children_of_this_process()} - before)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """FEEDLINE_DIR for this test: a short path, since a socket's address has 108 bytes.

    At the end nothing of Feedline may be left: no process, no file in /dev/shm, none in the folder.
    """
    path = Path(tempfile.mkdtemp(prefix="fl", dir=os.environ.get(SOAK, "/tmp")))
    monkeypatch.setenv("FEEDLINE_DIR", str(path))
    shared_before = shared_memory_files()
    children_before = set(children_of_this_process())
    yield path
    left = _processes_left(path, children_before)
    if left:
        # An exception's traceback may be all that keeps a DataLoader's workers.
        gc.collect()
        # A process that has sent its last report, or was killed, still needs a moment to end.
        with contextlib.suppress(AssertionError):
            eventually(lambda: not _processes_left(path, children_before))
        left = _processes_left(path, children_before)
    files = {file.name: _text(file) for file in path.iterdir()} if path.exists() else {}
    # Others on this machine may have files there for a moment.
    with contextlib.suppress(AssertionError):
        eventually(lambda: shared_memory_files() <= shared_before)
    shared = sorted(shared_memory_files() - shared_before)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"processes left behind: {left}"
    assert not files, f"files left in FEEDLINE_DIR: {files}"
    assert not shared, f"files left in /dev/shm: {shared}"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a process: `start(function, **keywords)` runs a top-level function of a test module.

    With `fault="point:count:action"` it runs on the build that has fault points; with a `prefix`
    another command starts it.

    A child ends when its function does; one that waits in `hear` ends with its pipe.
    """
    children: list[Child] = []

    def start_child(
        function: Callable[..., None],
        *,
        fault: str | None = None,
        prefix: Sequence[str] = (),
        **keywords: Any,
    ) -> Child:
        child = Child(function, keywords, fault=fault, prefix=prefix)
        children.append(child)
        return child

    yield start_child
    complaints = [child.finish() for child in children]
    assert not any(complaints), "\n".join(filter(None, complaints))


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """Start an example: `run("train.py", "64")`. It is gone when the test ends."""
    processes: list[subprocess.Popen[str]] = []

    def start_one(name: str, *args: str) -> subprocess.Popen[str]:
        processes.append(start_example(name, *args))
        return processes[-1]

    yield start_one
    for process in processes:
        end(process)


@pytest.fixture
def servers_leave(folder: Path) -> Iterator[None]:
    """Let servers of shared feeds leave; what they printed, or why they failed, stays."""
    yield
    eventually(lambda: not processes_with(str(folder)))
    for path in folder.iterdir():
        path.unlink()


@pytest.fixture
def reap(folder: Path) -> Callable[[], None]:
    """End what a killed process left running: orphans that check only now and then."""

    def reap_orphans() -> None:
        for pid in processes_with(str(folder)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not processes_with(str(folder)))

    return reap_orphans
