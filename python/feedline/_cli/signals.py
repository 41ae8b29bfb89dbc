"""Ctrl-C and similar signals, handled at once whatever the loader does to the main thread.

The kernel's signal is written to a pipe that a thread reads (`signal.set_wakeup_fd`), so it arrives
even while the main thread is in native code. Python's own handler then runs when it can, and
interrupts the loader.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal's Ctrl-C may arrive twice, from the terminal and from our parent process.
_ONE_PRESS_SECS = 0.25


class Early:
    """Signals while the loader is being made, until ``Signals`` takes over.

    Python code may swallow the interruption; `number` still shows it. The second one kills.
    """

    def __init__(self, kill: Callable[[int], None]) -> None:
        """`kill(number)` is called for the second one."""
        self.number: int | None = None
        self._kill = kill
        self._pid = os.getpid()
        self._at = 0.0
        for number in HEARD:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if os.getpid() != self._pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        now = monotonic()
        if self.number is None:
            self.number, self._at = number, now
            raise KeyboardInterrupt
        if now - self._at > _ONE_PRESS_SECS:
            self._kill(number)


class Signals:
    """Handlers for the signals that end a program; workers of the loader don't inherit them."""

    def __init__(self, act: Callable[[int], None]) -> None:
        """`act(number)` is called by the main thread, before the loader is interrupted."""
        self._act = act
        self._pid = os.getpid()
        self._ear, mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._last: dict[int, float] = {}
        self._raised = 0.0
        # Whether the main thread is in the loader, and may be interrupted.
        self.is_loading = False
        for number in HEARD:
            # nohup, and shells that start a job in the background, ignore signals on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forget)

    def hear(self, timeout_secs: float) -> int | None:
        """Wait for a signal."""
        select.select([self._ear], [], [], timeout_secs)
        with contextlib.suppress(BlockingIOError):
            # Other signals with a handler arrive too, such as SIGCHLD.
            for number in os.read(self._ear, 1):
                if number in HEARD and self._is_new(number):
                    return number
        return None

    def _is_new(self, number: int) -> bool:
        now = monotonic()
        before, self._last[number] = self._last.get(number), now
        return before is None or now - before > _ONE_PRESS_SECS

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if os.getpid() != self._pid:
            self._forget()
            os.kill(os.getpid(), number)
            return
        self._act(number)
        now = monotonic()
        if self.is_loading and now - self._raised > _ONE_PRESS_SECS:
            self._raised = now
            raise KeyboardInterrupt

    def _forget(self) -> None:
        """In a forked child, signals have their usual effect again."""
        signal.set_wakeup_fd(-1)
        for number in HEARD:
            if signal.getsignal(number) == self._handle:
                is_interrupt = number == signal.SIGINT
                signal.signal(
                    number, signal.default_int_handler if is_interrupt else signal.SIG_DFL
                )
