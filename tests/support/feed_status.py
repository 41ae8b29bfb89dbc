"""Asking the command line for the state of feeds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
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


def judged(name: str, kind: str, *words: str) -> View:
    """Poll until the verdict is of this kind and has these words; a longer one must agree."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while True:
        view = top(name)
        verdict = view["verdict"]
        if verdict["kind"] == kind and all(word in verdict["text"] for word in words):
            break
        assert time.monotonic() < deadline, f"{kind} {words} was expected: {json.dumps(view)}"
    again = top(name, interval_secs=2.5)
    assert again["verdict"]["kind"] == kind, json.dumps(again)
    return view
