"""Progress on standard error: one bar on a terminal, lines elsewhere."""

from __future__ import annotations

from time import monotonic

from feedline._cli.failure import say
from feedline._cli.screen import Screen

_BAR_CELLS = 28
_REDRAW_SECS = 0.1


class Progress:
    """One bar over all stages, each with a share of it by the seconds that it should take."""

    def __init__(self, stages: dict[str, float], *, plain: bool = True) -> None:
        """`plain`: whether to write lines where there is no terminal."""
        self._screen = Screen()
        self._plain = plain
        self._stages = stages
        self._total = sum(stages.values())
        self._done = 0.0
        self._stage = ""
        self._drawn_at = 0.0

    def enter(self, stage: str) -> None:
        self._done += self._stages.get(self._stage, 0.0)
        self._stage = stage
        self._drawn_at = 0.0
        if not self._screen.is_live and self._plain:
            say(f"  {stage} ...")
        self.show(0.0)

    def show(self, fraction: float, note: str = "") -> None:
        """Redraw the bar; `fraction` is of the current stage."""
        if not self._screen.is_live or monotonic() - self._drawn_at < _REDRAW_SECS:
            return
        self._drawn_at = monotonic()
        whole = (self._done + min(fraction, 1.0) * self._stages[self._stage]) / self._total
        bar = self._screen.bar(whole, _BAR_CELLS)
        self._screen.status(f"  {bar} {whole:4.0%}  {self._stage}{'   ' + note if note else ''}")

    def clear(self) -> None:
        self._screen.status("")
