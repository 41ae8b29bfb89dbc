"""What a soak says at its end, and that it disturbs without breaking what tests do themselves."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from soak.disturb import Stops, busy
from soak.summary import Failure, Round, exit_code, summary
from support.processes import children_of_this_process
from support.stopping import SOAK, is_stopped, resume, resume_in_passing, stop, stop_in_passing
from support.waiting import eventually

A, B = "tests/cli/test_run.py::test_a", "tests/sharing/test_share.py::test_b[x y]"


def test_nothing_failed() -> None:
    rounds = [Round(1, 17), Round(2, 18)]
    assert summary(rounds) == "soak: 2 rounds, no failures"
    assert exit_code(rounds) == 0


def test_every_failure_has_its_round_its_seed_and_the_way_back() -> None:
    rounds = [
        Round(1, 17),
        Round(2, 18, [Failure(A, "call"), Failure(B, "teardown")]),
        Round(3, 19, [Failure(A, "call"), Failure("left behind: pid 7, python")]),
    ]
    assert exit_code(rounds) == 1
    assert summary(rounds).splitlines() == [
        "soak: 3 rounds, 4 failures",
        f"  round 2, seed 18: {A}",
        f"  round 2, seed 18: {B} (teardown)",
        "    the round again: make soak ROUNDS=1 SEED=18",
        "    these alone:     make soak ROUNDS=1 SEED=18 "
        "ARGS='tests/cli/test_run.py tests/sharing/test_share.py'",
        f"  round 3, seed 19: {A}",
        "  round 3, seed 19: left behind: pid 7, python",
        "    the round again: make soak ROUNDS=1 SEED=19",
        "    these alone:     make soak ROUNDS=1 SEED=19 ARGS='tests/cli/test_run.py'",
        f"  in 2 of 3 rounds: {A}",
    ]


def test_one_test_that_fails_twice_in_a_round_failed_in_one_round() -> None:
    rounds = [Round(1, 17, [Failure(A, "call"), Failure(A, "teardown")])]
    assert summary(rounds).splitlines()[0] == "soak: 1 round, 2 failures"
    assert "in 2 of" not in summary(rounds)


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process of a soak that does nothing."""
    monkeypatch.setenv(SOAK, str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_what_a_test_has_stopped_stays_stopped(idle: int, tmp_path: Path) -> None:
    assert stop_in_passing(idle, tmp_path)
    stop(idle)
    resume_in_passing(idle, tmp_path)
    assert is_stopped(idle)
    assert not stop_in_passing(idle, tmp_path)
    resume(idle)
    eventually(lambda: not is_stopped(idle))
    assert stop_in_passing(idle, tmp_path)
    resume_in_passing(idle, tmp_path)
    eventually(lambda: not is_stopped(idle))


def test_processes_are_stopped_and_go_on(idle: int, tmp_path: Path) -> None:
    with Stops(tmp_path, per_sec=5, seed=random.randrange(100)) as stops:
        for _ in range(3):
            eventually(lambda: is_stopped(idle))
            eventually(lambda: not is_stopped(idle))
    eventually(lambda: not is_stopped(idle))
    assert stops.count >= 3


def test_the_load_ends_with_the_round() -> None:
    before = set(children_of_this_process())
    with busy(2):
        assert len(set(children_of_this_process()) - before) == 2
    assert set(children_of_this_process()) == before
    assert SOAK not in os.environ
