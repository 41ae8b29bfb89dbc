"""Waiting for what can be observed, so that no test's outcome depends on how fast a machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECS = 60.0


def eventually(condition: Callable[[], bool], *, within_secs: float = TIMEOUT_SECS) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + within_secs
    while not condition():
        assert time.monotonic() < deadline, f"not so within {within_secs} s"
        time.sleep(0.005)  # pause: polls


def allow_to_go_wrong(secs: float) -> None:
    """Let time pass in which something would happen that must not.

    On a slow machine less happens in it: the test then finds less, and doesn't fail for that.
    """
    time.sleep(secs)  # pause: nothing can be waited for where nothing may happen


def best_of(measure: Callable[[], float], *, below_secs: float, rounds: int = 5) -> None:
    """Measure until a round takes less: other processes may slow down some rounds."""
    took: list[float] = []
    while not took or min(took) >= below_secs:
        assert len(took) < rounds, f"took {took} s, never less than {below_secs} s"
        took.append(measure())
