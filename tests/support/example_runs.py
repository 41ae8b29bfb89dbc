"""Examples, run as a user would run them: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Each of its processes imports torch, beside other tests that do.
WATCHDOG_SECS = 150.0

Run = Callable[..., subprocess.Popen[str]]


def start_example(name: str, *args: str) -> subprocess.Popen[str]:
    """Start an example in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *args],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def output_of(process: subprocess.Popen[str], *, within_secs: float = WATCHDOG_SECS) -> str:
    """Wait for what it writes; it must end by itself, and well."""
    output, _ = process.communicate(timeout=within_secs)
    assert process.returncode == 0, output
    return output


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
