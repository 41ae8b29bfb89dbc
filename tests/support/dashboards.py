"""A dashboard in a process of its own, and jobs for it to show."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import feedline
from support.child import say
from support.waiting import TIMEOUT_SECS

LOADER: dict[str, Any] = {
    "loader": "Resumable",
    "loader_args": [4000, 16],
    "loader_options": {"pause_secs": 0.004},
}


class Dashboard:
    """`feedline dashboard`, updated five times a second, on a port of its own."""

    def __init__(self, *args: str) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        quick = ["--interval-secs", "0.2"]
        port = [] if "--port" in args else ["--port", "0"]
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "feedline", "dashboard", *quick, *port, *args],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        assert self._popen.stdout is not None
        self.url = self._popen.stdout.readline().strip()
        self.port = urlsplit(self.url).port or 0

    @property
    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; return the exit code, and what else was on stdout."""
        self._popen.send_signal(number)
        assert self._popen.stdout is not None
        rest = self._popen.stdout.read()
        return self._popen.wait(TIMEOUT_SECS), rest

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._popen.poll() is None:
                self.end(signal.SIGTERM)
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait(TIMEOUT_SECS)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._stderr.close()

    def ask(
        self, path: str = "/", *, method: str = "GET", **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """Give status, headers and body. Underscores in headers' names are hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode()
        finally:
            connection.close()

    def feeds(self) -> dict[str, Any]:
        """Return what is known about each feed, by its name."""
        body = json.loads(self.ask("/api/feeds")[2])
        return {feed["name"]: feed for feed in body["feeds"]}


def train(note: str = "", secs: float = 0.0, name: str = "train", **options: Any) -> None:
    """Read without end, with a step of so many seconds; `note` stands in the command line."""
    feed = feedline.attach(name, **options)
    say("attached", note=note)
    while True:
        for _ in feed:
            time.sleep(secs)  # pause: a training step
