"""Lines on stderr, and on a terminal a status line below them that is redrawn."""

from __future__ import annotations

import shutil
import sys
import threading

from feedline._cli.failure import is_coloured, say

# Each is an eighth wider.
_CELLS = " ▏▎▍▌▋▊▉█"


class Screen:
    """Lines that stay, and a status line below them. May be written to from several threads."""

    def __init__(self) -> None:
        """Find out what stderr is."""
        self.is_live = is_coloured(sys.stderr)
        encoding = (sys.stderr.encoding or "ascii").lower().replace("-", "")
        self._has_blocks = encoding == "utf8"
        self._status = ""
        self._lock = threading.RLock()

    def line(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            shown, self._status = self._status, ""
            if shown:
                text = f"\r\x1b[K{text}"
            say(text)
            self.status(shown)

    def status(self, text: str) -> None:
        """Replace the last line; none if it is empty, and none where there is no terminal."""
        if not self.is_live:
            return
        # A line that is longer than the terminal would wrap, and couldn't be redrawn.
        text = text[: shutil.get_terminal_size().columns - 1]
        with self._lock:
            if text or self._status:
                say(f"\r\x1b[K{text}", end="")
            self._status = text

    def bar(self, share: float, cells: int = 20) -> str:
        """Draw a share between 0 and 1."""
        share = min(max(share, 0.0), 1.0)
        if not self._has_blocks:
            full = round(share * cells)
            return f"[{'#' * full}{'.' * (cells - full)}]"
        eighths = round(share * cells * 8)
        part = _CELLS[eighths % 8] if eighths % 8 else ""
        return ("█" * (eighths // 8) + part).ljust(cells)
