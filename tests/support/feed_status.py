"""Asking the command line for the state of feeds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from support.waiting import TIMEOUT_SECS

FEEDLINE = [sys.executable, "-m", "feedline"]

View = dict[str, Any]


def feedline_run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    options = {"capture_output": True, "text": True, "timeout": TIMEOUT_SECS, **options}
    return subprocess.run([*FEEDLINE, *args], check=False, **options)


def top(name: str, *, interval_secs: float = 1.0) -> View:
    """Return what `feedline top --json` reports about one feed, once that answers."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while True:
        done = feedline_run("top", name, "--json", "--interval-secs", str(interval_secs))
        assert done.returncode == 0, done.stderr
        [view] = json.loads(done.stdout)
        assert isinstance(view, dict)
        if view["state"] != "silent":
            return view
        assert time.monotonic() < deadline, view


def judged(
    name: str, kind: str, *words: str, where: Callable[[View], bool] = lambda view: True
) -> View:
    """Poll until the verdict is of this kind, has these words, and is `where` the view is so.

    A busy machine may be judged otherwise for a while: what counts is that the verdict comes.
    """
    deadline = time.monotonic() + TIMEOUT_SECS
    while True:
        view = top(name)
        verdict = view["verdict"]
        is_said = verdict["kind"] == kind and all(word in verdict["text"] for word in words)
        if is_said and where(view):
            return view
        assert time.monotonic() < deadline, f"{kind} {words} was expected: {json.dumps(view)}"
