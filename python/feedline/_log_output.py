"""The output of a shared feed's server: a file that may be on a full disk.

A ``print`` that raises would end a feed because of one line. Here lines are lost instead, and
once there is space again the log says how much is missing.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _LossyFile(io.RawIOBase):
    """A descriptor whose writes never fail."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost_bytes = 0
        self._why = ""

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            if self._lost_bytes:
                note = f"\n[feedline: {self._lost_bytes} bytes are missing here: {self._why}]\n"
                os.write(self._descriptor, note.encode())
                self._lost_bytes = 0
            return os.write(self._descriptor, data)
        except OSError as error:
            self._lost_bytes += len(data)
            self._why = error.strerror or str(error)
            return len(data)


def print_without_raising() -> None:
    """Make this process's standard output and error lose what can't be written, line by line."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        raw = io.BufferedWriter(_LossyFile(descriptor))
        text = io.TextIOWrapper(
            raw, encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, text)
