"""Every example runs, as a user would run it, in processes of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WATCHDOG_SECS = 60.0

pytestmark = pytest.mark.timeout(3 * WATCHDOG_SECS, method="thread")

Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """Start an example, in a process group that is gone when the test ends."""
    processes: list[subprocess.Popen[str]] = []

    def start(name: str, *args: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, str(EXAMPLES / name), *args],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def output_of(process: subprocess.Popen[str]) -> str:
    """Wait for what it writes; it must end by itself, and well."""
    output, _ = process.communicate(timeout=WATCHDOG_SECS)
    assert process.returncode == 0, output
    return output


def test_no_example_is_left_out() -> None:
    tested = {"numpy_feed.py", "serve_imagefolder.py", "train.py"}
    tested |= {"from_tensorsocket_consumer.py", "from_tensorsocket_producer.py"}
    examples = {file.name for file in EXAMPLES.glob("*.py")}
    # Those with a framework run with its tests.
    assert {name for name in examples if not name.startswith("with_")} == tested


def test_numpy_feed(run: Run) -> None:
    assert sorted(output_of(run("numpy_feed.py")).splitlines()) == [
        "batch size 300: 1000 samples, each exactly once, in order",
        "batch size 32: 1000 samples, each exactly once, in order",
    ]


def test_two_trainers_on_one_image_folder(run: Run) -> None:
    server = run("serve_imagefolder.py")
    trainers = {"7": run("train.py", "64"), "9": run("train.py", "48")}
    for batches, trainer in trainers.items():
        output = output_of(trainer)
        epochs = re.findall(r"epoch (\d): (\d+) samples in (\d+) batches", output)
        assert epochs == [(str(epoch), "400", batches) for epoch in range(3)], output
    assert server.poll() is None, "it serves until its user ends it"
    server.send_signal(signal.SIGINT)
    output, _ = server.communicate(timeout=WATCHDOG_SECS)
    assert server.returncode in (0, 130, -signal.SIGINT), output


def test_scripts_that_were_written_for_tensorsocket(run: Run) -> None:
    trainers = {
        "63": run("from_tensorsocket_consumer.py", "16"),
        "16": run("from_tensorsocket_consumer.py"),
    }
    producer = run("from_tensorsocket_producer.py")
    for batches, trainer in trainers.items():
        output = output_of(trainer)
        epochs = re.findall(r"epoch (\d): (\d+) samples in (\d+) batches", output)
        assert epochs == [(str(epoch), "1000", batches) for epoch in range(3)], output
    assert "every consumer has read them" in output_of(producer)
