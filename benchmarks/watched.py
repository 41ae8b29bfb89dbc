"""Workload *watched*: fan-out at full speed to four consumers, with and without somebody watching.

``feedline top`` in a terminal, ``feedline dashboard`` with a browser's live stream open, a scrape
of the server's own ``metrics_port``, and all of them together, each with a look every second.
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
from .contestants import Scene
from .contestants.feedline_feed import Feedline
from .ledger import Ledger
from .settings import Settings
from .stage import Stage, cpu_secs
from .trial import Trial

_CONSUMERS = 4
_LOOK_SECS = 1.0
_READY_SECS = 60.0
_FIRST_LOOKS = 2
_COMMAND = [sys.executable, "-m", "feedline"]

NOBODY, AGAIN, EVERYBODY = "nobody", "nobody, again", "all three"


class _Looks:
    """Counts a watcher's looks, and notes the CPUs that its process keeps busy, in millionths."""

    def __init__(self, ledger: Ledger, slot: int, pid: int | None) -> None:
        self._ledger, self._slot, self._pid = ledger, slot, pid
        self._since = (0.0, 0.0)

    def count(self) -> None:
        at = self._ledger.line(self._slot)
        self._ledger.words[at] += 1
        if self._pid is None:
            return  # the server answers, in its own time
        now = (time.monotonic(), cpu_secs(self._pid))
        # Its start is over with the second look.
        if self._ledger.words[at] <= _FIRST_LOOKS:
            self._since = now
        elif now[0] > self._since[0]:
            cpus = (now[1] - self._since[1]) / (now[0] - self._since[0])
            self._ledger.note(self._slot, round(1e6 * cpus))


def _top(ledger: Ledger, slot: int, port: int) -> None:
    """Count how often the screen changes."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(_COMMAND[0], [*_COMMAND, "top", "--interval-secs", str(_LOOK_SECS)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    look = _Looks(ledger, slot, pid)
    try:
        while not ledger.stopped:
            if select.select([terminal], [], [], 0.1)[0]:
                os.read(terminal, 1 << 16)
                look.count()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _dashboard(ledger: Ledger, slot: int, port: int) -> None:
    """Count what a browser is sent."""
    command = [*_COMMAND, "dashboard", "--port", "0", "--interval-secs", str(_LOOK_SECS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            look = _Looks(ledger, slot, process.pid)
            url = process.stdout.readline().strip().rstrip("/")
            with urllib.request.urlopen(f"{url}/api/live", timeout=_READY_SECS) as live:
                for line in live:
                    if line.startswith(b"data:"):
                        look.count()
                    if ledger.stopped:
                        break
        finally:
            process.kill()


def _prometheus(ledger: Ledger, slot: int, port: int) -> None:
    """Count scrapes."""
    look = _Looks(ledger, slot, None)
    while not ledger.stopped:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=_READY_SECS
        ) as text:
            if b"feedline_samples_total{" in text.read():
                look.count()
        time.sleep(_LOOK_SECS)


_WATCHERS: dict[str, tuple[Callable[[Ledger, int, int], None], ...]] = {
    NOBODY: (),
    "top": (_top,),
    "dashboard": (_dashboard,),
    "Prometheus": (_prometheus,),
    EVERYBODY: (_top, _dashboard, _prometheus),
    AGAIN: (),
}


class Watched(Feedline):
    """A feed with these watchers, who look on before the clock starts."""

    # Long enough for several looks.
    least_secs = 4 * _LOOK_SECS

    def __init__(self, name: str) -> None:
        self.name = name

    def cast(self, stage: Stage, scene: Scene) -> None:
        watchers = _WATCHERS[self.name]
        self.metrics_port = _free_port() if _prometheus in watchers else None
        super().cast(stage, scene)
        if not watchers:
            return
        stage.wait_for_counts("consumer", 1, timeout_secs=_READY_SECS)
        for index, watch in enumerate(watchers):
            slot = 1 + scene.consumers + index
            stage.fork("watcher", slot, watch, self.metrics_port or 0)
        stage.wait_for_counts("watcher", _FIRST_LOOKS, timeout_secs=_READY_SECS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def run(settings: Settings, folder: Path) -> list[Trial]:
    """All trials; each round begins with another watcher."""
    scene = Scene(
        "images", "take", _CONSUMERS, settings.ring_bytes, payload.prepare("images"), folder
    )
    names = list(_WATCHERS)
    done = []
    for turn in range(settings.repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            trial.progress(f"watched, round {turn + 1} of {settings.repeats}: by {name}")
            done.append(trial.run(Watched(name), scene, secs=settings.secs, round=turn))
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
