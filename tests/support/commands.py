"""The command line as a process: started, read from, signalled, never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.processes import TESTS
from support.waiting import TIMEOUT_SECS, eventually

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", TESTS.parent / "target")).absolute()
BINARY = TARGET / "debug" / "feedline"
# Loaders to serve, in a file as a user names it.
SERVED = TESTS / "support" / "served.py"
WHEEL = [sys.executable, "-m", "feedline"]

# Variables that may be set around the tests and would change the output.
_LOOSE = ("NO_COLOR", "COLUMNS", "TERM", "FEEDLINE_PYTHON", "FEEDLINE_TOKEN", "PYTHONUNBUFFERED")


def environment(**more: str) -> dict[str, str]:
    """Our environment, without what changes the output; 100 columns."""
    kept = {key: value for key, value in os.environ.items() if key not in _LOOSE}
    return {**kept, "COLUMNS": "100", **more}


def binary() -> list[str]:
    """The plain binary."""
    assert BINARY.exists(), f"no {BINARY}: `cargo build -p feedline-cli` builds it"
    return [str(BINARY)]


def ignoring(name: str, program: Sequence[str]) -> list[str]:
    """Start the program with a signal ignored, as some parent processes leave it."""
    code = (
        f"import os, signal, sys; signal.signal(signal.{name}, signal.SIG_IGN);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", code, *program]


def run(
    *args: str, program: Sequence[str] = WHEEL, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*program, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECS,
        check=False,
    )


class Command:
    """A command that keeps running; its output is read as it comes."""

    def __init__(
        self, *args: str, program: Sequence[str] = WHEEL, cwd: Path | None = None, **env: str
    ) -> None:
        self._popen = subprocess.Popen(
            [*program, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=cwd,
            env=environment(**env),
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=into.extend, args=(stream,), daemon=True)
            for into, stream in ((self.out, self._popen.stdout), (self.err, self._popen.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def said(self) -> str:
        return "".join(self.err)

    @property
    def printed(self) -> str:
        return "".join(self.out)

    def until(self, part: str) -> None:
        """Wait until it has written this, to either stream."""
        try:
            eventually(lambda: part in self.said + self.printed or self._popen.poll() is not None)
            if part not in self.said + self.printed:
                self.exit_code()
            assert part in self.said + self.printed
        except AssertionError:
            raise AssertionError(f"no {part!r} in\n{self.said}\n{self.printed}") from None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def exit_code(self) -> int:
        """Wait for its end, and for all that it wrote."""
        code = self._popen.wait(TIMEOUT_SECS)
        for reader in self._readers:
            reader.join(TIMEOUT_SECS)
        return code

    def end(self) -> None:
        end(self._popen)


def end(process: subprocess.Popen[Any]) -> None:
    """Tell it to end, and see that it does."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(TIMEOUT_SECS)


Begin = Callable[..., Command]


@pytest.fixture
def begin(folder: Path) -> Iterator[Begin]:
    """Start a command: `begin("serve", ...)`. It is gone when the test ends."""
    commands: list[Command] = []

    def start(
        *args: str, program: Sequence[str] = WHEEL, cwd: Path | None = None, **env: str
    ) -> Command:
        commands.append(Command(*args, program=program, cwd=cwd, **env))
        return commands[-1]

    yield start
    for command in commands:
        command.end()
