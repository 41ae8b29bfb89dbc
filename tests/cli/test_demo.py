"""The demo, small: it measures both halves, checks exactness, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import processes_with
from support.waiting import eventually

WATCHDOG_SECS = 120.0

pytestmark = [pytest.mark.alone, pytest.mark.timeout(2 * WATCHDOG_SECS, method="thread")]

Demo = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def demo(folder: Path) -> Iterator[Demo]:
    """Start the demo with all its files in `folder`, which must be empty again at the end."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "feedline", "demo", "--images", "96", *args],
                env={**os.environ, "TMPDIR": str(folder)},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_it_shows_both_halves_and_checks_exactness(demo: Demo) -> None:
    process = demo("--jobs", "2", "--seconds", "1")
    output, progress = process.communicate(timeout=WATCHDOG_SECS)
    assert process.returncode == 0, progress
    for part in ("job 2, batch size 32", "CPU-seconds", "memory", "exactly once per epoch"):
        assert part in output
    assert "one feed: measuring" in progress


def test_as_json_it_prints_nothing_else(demo: Demo) -> None:
    process = demo("--jobs", "1", "--seconds", "1", "--cores", "1", "--json")
    output, progress = process.communicate(timeout=WATCHDOG_SECS)
    assert process.returncode == 0, progress
    found = json.loads(output)
    assert (found["jobs"], found["images"], found["cores"], found["exact"]) == (1, 96, 1, True)
    for half in ("loader_each", "one_feed"):
        assert found[half]["samples_per_sec_mean"] > 0
        assert found[half]["cores_allowed"] == 1
        (job,) = found[half]["each_job"]
        assert job["batch_size"] == 16
    assert found["speed_ratio"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_mid_training_it_takes_all_processes_along(
    demo: Demo, folder: Path, number: signal.Signals
) -> None:
    process = demo("--seconds", "600", "--jobs", "1")
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None, process.stderr.read()
    assert len(processes_with(str(folder))) >= 4, "the demo, a job, its two workers"
    process.send_signal(number)
    process.communicate(timeout=WATCHDOG_SECS)
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    eventually(lambda: not processes_with(str(folder)))
    if number == signal.SIGKILL:
        # Nobody was left to remove the pictures.
        (pictures,) = folder.iterdir()
        subprocess.run(["rm", "-r", str(pictures)], check=True)
