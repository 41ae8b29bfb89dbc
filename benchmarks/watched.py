"""Workload *watched*: fan-out at full speed to four consumers, with and without somebody watching.

``feedline top`` in a terminal, ``feedline dashboard`` with a browser's live stream open, a scrape
of the server's own ``metrics_port``, and all of them together, each with an update every second.
Nobody watches twice in each round: what those two differ by is what can't be measured here.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from . import payload, trial
from .contestants import TrialSetup
from .contestants.feedline_feed import Feedline
from .counters import Counters
from .processes import TrialProcesses, cpu_secs
from .settings import Settings
from .trial import Trial

_CONSUMERS = 4
_POLL_SECS = 1.0
_READY_SECS = 60.0
_FIRST_POLLS = 2
_COMMAND = [sys.executable, "-m", "feedline"]

NOBODY, AGAIN, EVERYBODY = "nobody", "nobody, again", "all three"


class _Polls:
    """Counts a watcher's updates, and notes the CPUs that its process keeps busy, in millionths."""

    def __init__(self, counters: Counters, slot: int, pid: int | None) -> None:
        self._counters, self._slot, self._pid = counters, slot, pid
        self._since = (0.0, 0.0)

    def count(self) -> None:
        at = self._counters.line(self._slot)
        self._counters.words[at] += 1
        if self._pid is None:
            return  # the server answers, in its own time
        now = (time.monotonic(), cpu_secs(self._pid))
        # Its start is over with the second update.
        if self._counters.words[at] <= _FIRST_POLLS:
            self._since = now
        elif now[0] > self._since[0]:
            cpus = (now[1] - self._since[1]) / (now[0] - self._since[0])
            self._counters.note(self._slot, round(1e6 * cpus))


def _top(counters: Counters, slot: int, port: int) -> None:
    """Count how often the screen changes."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(_COMMAND[0], [*_COMMAND, "top", "--interval-secs", str(_POLL_SECS)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    polls = _Polls(counters, slot, pid)
    try:
        while not counters.stopped:
            if select.select([terminal], [], [], 0.1)[0]:
                os.read(terminal, 1 << 16)
                polls.count()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _dashboard(counters: Counters, slot: int, port: int) -> None:
    """Count what a browser is sent."""
    command = [*_COMMAND, "dashboard", "--port", "0", "--interval-secs", str(_POLL_SECS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            polls = _Polls(counters, slot, process.pid)
            url = process.stdout.readline().strip().rstrip("/")
            with urllib.request.urlopen(f"{url}/api/live", timeout=_READY_SECS) as live:
                for line in live:
                    if line.startswith(b"data:"):
                        polls.count()
                    if counters.stopped:
                        break
        finally:
            process.kill()


def _prometheus(counters: Counters, slot: int, port: int) -> None:
    """Count scrapes."""
    polls = _Polls(counters, slot, None)
    while not counters.stopped:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=_READY_SECS
        ) as text:
            if b"feedline_samples_total{" in text.read():
                polls.count()
        time.sleep(_POLL_SECS)


_WATCHERS: dict[str, tuple[Callable[[Counters, int, int], None], ...]] = {
    NOBODY: (),
    "top": (_top,),
    "dashboard": (_dashboard,),
    "Prometheus": (_prometheus,),
    EVERYBODY: (_top, _dashboard, _prometheus),
    AGAIN: (),
}


class Watched(Feedline):
    """A feed with these watchers, which run before the clock starts."""

    # Long enough for several updates.
    least_secs = 4 * _POLL_SECS

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None:
        watchers = _WATCHERS[self.name]
        self.metrics_port = _free_port() if _prometheus in watchers else None
        super().start(processes, setup)
        if not watchers:
            return
        processes.wait_for_counts("consumer", 1, timeout_secs=_READY_SECS)
        for index, watch in enumerate(watchers):
            slot = 1 + setup.consumers + index
            processes.fork("watcher", slot, watch, self.metrics_port or 0)
        processes.wait_for_counts("watcher", _FIRST_POLLS, timeout_secs=_READY_SECS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def run(settings: Settings, folder: Path) -> list[Trial]:
    """All trials; each round begins with another watcher."""
    setup = TrialSetup(
        "images", "take", _CONSUMERS, settings.ring_bytes, payload.prepare("images"), folder
    )
    names = list(_WATCHERS)
    done = []
    for turn in range(settings.repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            trial.progress(f"watched, round {turn + 1} of {settings.repeats}: by {name}")
            done.append(trial.run(Watched(name), setup, secs=settings.secs, round=turn))
    return done


def trials_by(results: list[Trial], watcher: str) -> dict[int, Trial]:
    return trial.chosen(results, watcher, _CONSUMERS, "take")


def share(
    results: list[Trial],
    watcher: str,
    number: Callable[[Trial], float] = lambda t: t.batches_per_sec,
) -> float | None:
    """Of the mean of those that nobody watches in the same round; median of the rounds."""
    first, again = trials_by(results, NOBODY), trials_by(results, AGAIN)
    watched = trials_by(results, watcher)
    shares = [
        2 * number(watched[turn]) / (number(first[turn]) + number(again[turn]))
        for turn in first.keys() & again.keys() & watched.keys()
    ]
    return statistics.median(shares) if shares else None


def cpu_secs_per_gb(one: Trial) -> float:
    """What the feed's own processes compute: on a busy machine this says more than a rate."""
    return one.producer_cpu_secs_per_gb + one.consumers * one.consumer_cpu_secs_per_gb
