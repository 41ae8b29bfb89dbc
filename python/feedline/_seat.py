"""A process's place at a feed: what was asked for, and what gives it.

A loader and its dataset share one seat. In a forked child, and where a feed was unpickled, it
attaches when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from feedline._core import FeedCore
from feedline._errors import FeedlineError


class Seat:
    """Attached, or able to attach."""

    def __init__(
        self,
        arguments: dict[str, Any],
        finish: Callable[[Any], Any] | None,
        when_missing: Callable[[], object] | None,
    ) -> None:
        """Keep what to ask for, what to do with each batch, and while nobody serves the feed."""
        self.arguments = arguments
        self.name: str = arguments["name"]
        self.finish = finish
        # What errors of this feed should end with, and whatever must live as long as it does.
        self.note: str | None = None
        self.keeps: Any = None
        self._when_missing = when_missing
        self._core: FeedCore | None = None

    @property
    def here(self) -> FeedCore | None:
        """What this process has attached; a forked child must not touch its parent's."""
        core = self._core
        return None if core is None or core.is_inherited else core

    @property
    def core(self) -> FeedCore:
        """The same, attached now if need be."""
        core = self.here
        if core is None:
            core = FeedCore(**self.arguments, when_missing=self._when_missing)
            self._core = core
        return core

    def iterate(self) -> Iterator[Any]:
        """One epoch; nothing happens before its first batch is asked for."""
        core = self.here
        batches: Iterator[Any]
        if core is None:
            batches = self._iterate_anew()
        elif core.closed:
            raise FeedlineError(f'feed "{self.name}" is closed')
        else:
            batches = core.iterate()
        if self.note is not None:
            batches = _noting(batches, self.note)
        return batches if self.finish is None else map(self.finish, batches)

    def _iterate_anew(self) -> Iterator[Any]:
        yield from self.core.iterate()

    def close(self) -> None:
        core, keeps, self.keeps = self.here, self.keeps, None
        if core is not None:
            core.close()
        if keeps is not None:
            keeps.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_core": None, "_when_missing": None, "keeps": None}


def _noting(batches: Iterator[Any], note: str) -> Iterator[Any]:
    """Have what goes wrong end with a line of one's own."""
    try:
        yield from batches
    except FeedlineError as error:
        raise noted(error, note) from error.__cause__


def noted(error: FeedlineError, note: str) -> FeedlineError:
    """The same error with one more line."""
    error.args = (f"{error}\n  {note}",)
    return error
