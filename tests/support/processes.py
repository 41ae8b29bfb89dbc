"""Child processes: started from a function, read through JSON lines, never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from support.stopping import resume, stop
from support.waiting import TIMEOUT_SECS

TESTS = Path(__file__).parents[1]
FAULTS = Path(os.environ.get("CARGO_TARGET_DIR", TESTS.parent / "target")).absolute() / "faults"

Report = dict[str, Any]


class Child:
    """A Python process that runs one top-level function of a test module."""

    timeout_secs = TIMEOUT_SECS

    def __init__(
        self,
        function: Callable[..., None],
        keywords: dict[str, Any],
        *,
        fault: str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.role = f"{function.__module__}:{function.__name__}"
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by finish()
        self._popen = subprocess.Popen(
            [*prefix, sys.executable, "-m", "support.child", self.role, json.dumps(keywords)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=_environment(fault),
        )
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        # A thread of its own reads: a child that writes much must not block on a full pipe.
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if line.startswith("{"):
                self._reports.put(json.loads(line))
        self._reports.put(None)

    def report(self, *, within_secs: float | None = None) -> Report:
        """Wait for the next report, whatever it is."""
        within_secs = self.timeout_secs if within_secs is None else within_secs
        try:
            report = self._reports.get(timeout=within_secs)
        except queue.Empty:
            silence = f"{self.role} said nothing for {within_secs} s\n{self.stderr}"
            raise AssertionError(silence) from None
        if report is None:
            self._reports.put(None)
            raise AssertionError(f"{self.role} ended ({self._popen.poll()})\n{self.stderr}")
        return report

    def expect(self, event: str) -> Report:
        """Wait for the next report, which must be this event."""
        report = self.report()
        assert report["event"] == event, (
            f"{self.role} said {report}\n{report.get('traceback', '')}\n{self.stderr}"
        )
        return report

    def expect_error(self, kind: type[BaseException], *parts: str) -> Report:
        """Wait for the function to end with this exception, whose message has these parts."""
        report = self.expect("error")
        assert kind.__name__ in report["bases"], report["traceback"]
        for part in parts:
            assert part in report["message"], report["message"]
        return report

    def said(self) -> list[Report]:
        """Give the reports that are there, without waiting for any."""
        reports = []
        with contextlib.suppress(queue.Empty):
            while (report := self._reports.get_nowait()) is not None:
                reports.append(report)
            self._reports.put(None)
        return reports

    def tell(self, word: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(word + "\n")
        self._popen.stdin.flush()

    def ask(self, word: str) -> Report:
        """Send a word and return the report of the same name."""
        self.tell(word)
        return self.expect(word)

    def exit_code(self, *, within_secs: float | None = None) -> int:
        return self._popen.wait(self.timeout_secs if within_secs is None else within_secs)

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()

    def signal(self, number: int) -> float:
        """Send a signal, and give the time at which it was sent."""
        at = time.monotonic()
        os.kill(self.pid, number)
        return at

    def stop(self) -> None:
        """Stop all its threads; `resume` lets it go on."""
        stop(self.pid)

    def resume(self) -> float:
        """Let it go on, and return the time at which it was told to."""
        at = time.monotonic()
        resume(self.pid)
        return at

    def kill(self) -> float:
        """`kill -9`, and the time at which it was sent."""
        at = self.signal(signal.SIGKILL)
        self._popen.wait(TIMEOUT_SECS)
        return at

    def finish(self) -> str | None:
        """End the child: the closed pipe asks it to. If it has to be killed, tells where it was."""
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        try:
            self._popen.wait(TIMEOUT_SECS)
            return None
        except subprocess.TimeoutExpired:
            self._popen.send_signal(signal.SIGABRT)
            try:
                self._popen.wait(TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                self.kill()
            return f"{self.role} had to be killed\n{self.stderr}"
        finally:
            self._stderr.close()


def _environment(fault: str | None) -> dict[str, str] | None:
    """Give the environment of a child that has a fault: it runs on the build with fault points."""
    if fault is None:
        return None
    if not (FAULTS / "feedline").exists():
        raise AssertionError(f"no extension with fault points in {FAULTS}: `make faults` builds it")
    path = os.pathsep.join([str(FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "FEEDLINE_FAULT": fault}


def all_wait_for(pid: int, stats: Report) -> bool:
    """Whether a consumer holds up its feed: the ring is full, and all the others wait for data."""
    is_full = stats["ring_samples"] - stats["ring_used_samples"] < 10
    others = [one for one in stats["consumers"] if one["pid"] != pid]
    return is_full and bool(others) and all(one["waiting"] for one in others)


def joined(stats: Report) -> int:
    """How many consumers have a place in the feed, by a server's `stats`."""
    return sum(consumer["joined"] for consumer in stats["consumers"])


def processes_with(word: str) -> list[int]:
    """Find processes, other than this one, that were started with this word in the environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "environ").read_bytes() and not _keeps_books(entry):
                    found.append(int(entry.name))
    return found


def _keeps_books(process: Path) -> bool:
    """Whether it is multiprocessing's own process, which ends with the one that it is for."""
    return "resource_tracker" in (process / "cmdline").read_text()


def children_of(process: int | str) -> list[int]:
    """Find direct children, zombies too, apart from multiprocessing's own book-keeping process."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread, or a child, may end meanwhile.
        with contextlib.suppress(OSError):
            for pid in (task / "children").read_text().split():
                if not _keeps_books(Path("/proc", pid)):
                    found.append(int(pid))
    return found


def children_of_this_process() -> list[int]:
    return children_of("self")


def shared_memory_files() -> set[str]:
    """List /dev/shm, without what torch, multiprocessing and browsers have there for moments."""
    names = {entry.name for entry in Path("/dev/shm").iterdir()}
    return {name for name in names if not name.startswith(("torch_", "sem.", ".org.chromium"))}
