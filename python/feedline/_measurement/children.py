"""Child processes: started, read from, and ended without a trace.

Each child leads a process group of its own, which its loader's workers inherit. So a Ctrl-C at the
terminal reaches only us, and we end all of them at once; `usage` finds them all.

A child writes one JSON object a line: ``{"at", "samples", "batches"}`` as it goes on; anything else
is its result, or with ``"error"`` in it the reason why there is none. It should end when its
standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple


class ChildFailedError(Exception):
    """A child ended before it was told to; the message has its error, or its last output."""

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        """With the child's last report, if it made one."""
        super().__init__(message)
        self.result = result or {}


class Step(NamedTuple):
    """How far a child had come at a given time."""

    at: float
    samples: int
    batches: int


class Child:
    """One process, its reports, and its standard error."""

    def __init__(self, module: str, *args: object, env: dict[str, str]) -> None:
        self.module = module
        self.steps: list[Step] = []
        self.result: dict[str, Any] | None = None
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `kill`
        self._unread = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=env,
            process_group=0,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def output_fd(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def read(self) -> bool:
        """Take in what the child has reported, once its output is readable; False at its end."""
        chunk = os.read(self.output_fd(), 65536)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "at" in message:
                self.steps.append(Step(**message))
            else:
                self.result = message
        return bool(chunk)

    def rate(self, start: float, end: float) -> float:
        """Count samples per second, from the first step in the window to the last."""
        steps = [step for step in self.steps if start <= step.at <= end]
        if len(steps) < 2:
            return 0.0
        return (steps[-1].samples - steps[0].samples) / (steps[-1].at - steps[0].at)

    def tell_to_end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._stderr):
            if pipe is not None:
                pipe.close()

    def failure(self, what: str) -> ChildFailedError:
        if self.result is not None and "error" in self.result:
            return ChildFailedError(self.result["error"], self.result)
        self._stderr.seek(0)
        tail = self._stderr.read().rstrip().splitlines()[-15:]
        # "job" or "server".
        role = self.module.rpartition(".")[2]
        said = [f"  {line}" for line in tail]
        return ChildFailedError("\n".join([f"the {role} (pid {self.pid}) {what}", *said]))


def how_it_ended(status: int) -> str:
    """By a process's status, as ``subprocess`` gives it."""
    if status >= 0:
        return f"ended with exit code {status}"
    names = {number.value: number.name for number in signal.Signals}
    often = ": often because memory ran out" if -status == signal.SIGKILL else ""
    return f"was killed by {names.get(-status, f'signal {-status}')}{often}"


class JobGroup:
    """Children that belong together. Leaving the ``with`` block ends them, however it is left."""

    def __init__(self, folder: Path) -> None:
        self.children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        # A killed loader leaves its sockets' folder behind: in ours, it is removed with it.
        places = {"FEEDLINE_DIR": str(folder / "feeds"), "TMPDIR": str(folder)}
        self._env = {**os.environ, **places}

    def __enter__(self) -> JobGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
        self._selector.close()

    @property
    def groups(self) -> set[int]:
        return {child.pid for child in self.children}

    def start(self, module: str, *args: object) -> Child:
        """Start ``python -m module``."""
        child = Child(module, *args, env=self._env)
        self.children.append(child)
        self._selector.register(child.output_fd(), selectors.EVENT_READ, child)
        return child

    def listen(self, secs: float) -> None:
        """Take in reports for `secs`; a child that ends meanwhile is an error."""
        self._take_reports(monotonic() + secs)
        ended = [child for child in self.children if child.ended()]
        if ended:
            # Its last report may still be in its pipe.
            self._take_reports(monotonic() + 0.05)
            raise ended[0].failure(how_it_ended(ended[0].process.returncode))

    def _take_reports(self, until: float) -> None:
        while (left := until - monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if not key.data.read():
                    self._selector.unregister(key.fd)

    def end(self, children: list[Child], timeout_secs: float) -> None:
        """Tell `children` to end, and take in their results."""
        for child in children:
            child.tell_to_end()
        deadline = monotonic() + timeout_secs
        while monotonic() < deadline and not all(child.ended() for child in children):
            self._take_reports(monotonic() + 0.05)
        # A child's last output may still be in its pipe.
        self._take_reports(monotonic() + 0.05)
