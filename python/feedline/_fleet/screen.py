"""What is shown: one progress bar on a terminal, plain lines elsewhere, and the table.

Progress goes to standard error, the result to standard output.
"""

from __future__ import annotations

import shutil
import sys
from time import monotonic

_BAR_CELLS = 28
_REDRAW_SECS = 0.1


class Progress:
    """One bar over all stages, each with a share of it by the seconds that it should take."""

    def __init__(self, stages: dict[str, float], *, plain: bool = True) -> None:
        """`plain`: whether to write lines where there is no terminal."""
        self._plain = plain
        self._stages = stages
        self._total = sum(stages.values())
        self._done = 0.0
        self._stage = ""
        self._drawn_at = 0.0
        self._live = sys.stderr.isatty()
        encoding = (sys.stderr.encoding or "ascii").lower().replace("-", "")
        self._full, self._empty = ("━", "─") if encoding == "utf8" else ("#", "-")

    def enter(self, stage: str) -> None:
        self._done += self._stages.get(self._stage, 0.0)
        self._stage = stage
        self._drawn_at = 0.0
        if not self._live and self._plain:
            print(f"  {stage} ...", file=sys.stderr, flush=True)
        self.show(0.0)

    def show(self, fraction: float, note: str = "") -> None:
        """`fraction` is of the present stage."""
        if not self._live or monotonic() - self._drawn_at < _REDRAW_SECS:
            return
        self._drawn_at = monotonic()
        whole = (self._done + min(fraction, 1.0) * self._stages[self._stage]) / self._total
        full = round(whole * _BAR_CELLS)
        bar = self._full * full + self._empty * (_BAR_CELLS - full)
        line = f"  {bar} {whole:4.0%}  {self._stage}{'   ' + note if note else ''}"
        # A line longer than the terminal would wrap, and then couldn't be drawn over.
        line = line[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def table(rows: list[tuple[str, ...]]) -> str:
    """Align the first column left, the others right; an empty row is a blank line."""
    widths = [max(len(row[column]) for row in rows if row) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)
