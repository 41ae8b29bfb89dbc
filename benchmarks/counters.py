"""The page that all processes of a trial share: a counter and an error text each, one stop flag.

A process counts what it has done in its own cache line; the measuring process reads all counters at
the start and at the end of the window. So nobody reports its own rate, and everybody is measured
over the same time. The page is a memfd: inherited over `fork`, or handed on by number over `exec`.

```text
line 0       [stop, ...]
line 1 + i   [count, state, note, ...]     one line of 64 bytes for each slot
then         512 bytes of error text       for each slot
```
"""

from __future__ import annotations

import mmap
import os

SLOTS = 32
WORDS_PER_LINE = 8
ERROR_BYTES = 512
_LINES_BYTES = (1 + SLOTS) * WORDS_PER_LINE * 8
_SIZE = _LINES_BYTES + SLOTS * ERROR_BYTES

STOP = 0
"""Index of the stop flag in `Counters.words`."""


class Counters:
    """A shared page of counters. `words` is its raw face, where a method call costs too much."""

    def __init__(self, fd: int | None = None) -> None:
        """Make a new page, or map the one behind an inherited descriptor."""
        if fd is None:
            fd = os.memfd_create("bench-counters")
            os.ftruncate(fd, _SIZE)
        self.fd = fd
        self._map = mmap.mmap(fd, _SIZE, flags=mmap.MAP_SHARED)
        self._bytes = memoryview(self._map)
        self.words = self._bytes[:_LINES_BYTES].cast("q")

    def line(self, slot: int) -> int:
        """Say at which index in `words` this slot counts."""
        return (1 + slot) * WORDS_PER_LINE

    def count(self, slot: int) -> int:
        return self.words[self.line(slot)]

    def note(self, slot: int, number: int) -> None:
        """Leave one number for the measuring process (the ring's size, for one)."""
        self.words[self.line(slot) + 2] = number

    def noted(self, slot: int) -> int:
        return self.words[self.line(slot) + 2]

    @property
    def stopped(self) -> bool:
        return self.words[STOP] != 0

    def stop(self) -> None:
        self.words[STOP] = 1

    def fail(self, slot: int, text: str) -> None:
        """Record why the process in this slot ended. The first reason stays."""
        at = _LINES_BYTES + slot * ERROR_BYTES
        if self.words[self.line(slot) + 1]:
            return
        data = text.encode()[: ERROR_BYTES - 1]
        self._bytes[at : at + len(data)] = data
        self.words[self.line(slot) + 1] = len(data)

    def error(self, slot: int) -> str | None:
        length = self.words[self.line(slot) + 1]
        at = _LINES_BYTES + slot * ERROR_BYTES
        return bytes(self._bytes[at : at + length]).decode(errors="replace") if length else None

    def close(self) -> None:
        self.words.release()
        self._bytes.release()
        self._map.close()
        os.close(self.fd)
