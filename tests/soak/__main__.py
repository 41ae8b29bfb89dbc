"""`make soak`: the process tests in many rounds, side by side, on a busy machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from soak.disturb import Stops, busy
from soak.record import FAILURES, SEED
from soak.summary import Failure, Round, exit_code, summary
from support.processes import TESTS, processes_with
from support.stopping import SOAK
from support.waiting import TIMEOUT_SECS, eventually

INTERRUPTED = Failure("interrupted")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4, help="tests side by side (4)")
    parser.add_argument("--load", type=int, default=2, help="processes that only compute (2)")
    parser.add_argument("--stops", type=float, default=2.0, help="stops in a second (2.0)")
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("tests", nargs="*", help="folders, files or tests; options after `--`")
    return parser.parse_args()


def run_round(number: int, seed: int, chosen: argparse.Namespace) -> Round:
    print(f"\nsoak: round {number}, seed {seed}", flush=True)
    # A short path: a socket's address has 108 bytes.
    with tempfile.TemporaryDirectory(prefix="soak", dir="/tmp") as folder:
        soak = Path(folder)
        # Tests have other users search for feeds in it.
        soak.chmod(0o755)
        with busy(chosen.load), Stops(soak, chosen.stops, seed) as stops:
            code = run_tests(soak, seed, chosen.jobs, chosen.tests)
        print(f"soak: stopped a process {stops.count} times", flush=True)
        left = end_what_is_left(soak)
        return Round(number, seed, [*read_failures(soak), *ended(code), *left])


def ended(code: int) -> list[Failure]:
    """Say how pytest ended, if not with tests that passed or failed."""
    match code:
        case pytest.ExitCode.OK | pytest.ExitCode.TESTS_FAILED:
            return []
        case pytest.ExitCode.INTERRUPTED:
            return [INTERRUPTED]
    return [Failure(f"pytest ended with {code}")]


def run_tests(soak: Path, seed: int, jobs: int, tests: Sequence[str]) -> int:
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "soak.record", "-p", "no:cacheprovider"),
        *("-n", str(jobs), "--dist", "worksteal", "-m", "processes and not alone"),
        *(tests or [str(TESTS)]),
    ]
    environment = {**os.environ, SOAK: str(soak), SEED: str(seed)}
    # A group of its own: an interrupt is handed on below, once.
    with subprocess.Popen(
        command, cwd=TESTS.parent, env=environment, stdin=subprocess.DEVNULL, process_group=0
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TIMEOUT_SECS)
            return pytest.ExitCode.INTERRUPTED
        finally:
            process.kill()


def read_failures(soak: Path) -> list[Failure]:
    file = soak / FAILURES
    lines = file.read_text().splitlines() if file.exists() else []
    return [Failure(**json.loads(line)) for line in lines]


def end_what_is_left(soak: Path) -> list[Failure]:
    """End what the round has left, and name it."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not processes_with(str(soak)), within_secs=10)
    left = []
    for pid in processes_with(str(soak)):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
            os.kill(pid, signal.SIGKILL)
            left.append(Failure(f"left behind: pid {pid}, {command}"))
    return left


def main() -> int:
    chosen = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    print(
        f"soak: {chosen.rounds} round(s) from seed {seed}, {chosen.jobs} tests side by side, "
        f"{chosen.load} busy processes, {chosen.stops:g} stops in a second",
        flush=True,
    )
    rounds: list[Round] = []
    for number in range(1, chosen.rounds + 1):
        # Each round has a seed of its own, with which it can be run again by itself.
        rounds.append(run_round(number, seed + number - 1, chosen))
        if INTERRUPTED in rounds[-1].failures:
            break
    print(f"\n{summary(rounds)}", flush=True)
    return exit_code(rounds)


if __name__ == "__main__":
    sys.exit(main())
