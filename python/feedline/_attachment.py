"""A process's attachment to a feed: what was asked for, and the consumer that delivers it.

A loader and its dataset share one attachment. In a forked child, and where a feed was unpickled, it
attaches when it is first needed.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from feedline._core import Batches, FeedCore
from feedline._errors import FeedlineError, FeedMismatchError, LoaderError
from feedline._numbered import check_known

_OF_THIS_PROCESS = ("_when_missing", "keeps", "check_server")


class Attachment:
    """A consumer of this process, or what it takes to attach one."""

    def __init__(
        self,
        arguments: dict[str, Any],
        finish: Callable[[Any], Any] | None,
        when_missing: Callable[[], object] | None,
    ) -> None:
        """Keep what to ask for, how to finish a batch, and what to do without a server."""
        self.arguments = arguments
        self.name: str = arguments["name"]
        self.postprocess = finish
        self.with_ids: bool = arguments["with_ids"]
        # Where a server that share() started prints to.
        self.server_log: Path | None = None
        # Whatever must live as long as this does.
        self.keeps: Any = None
        # Called with the server's pid before each batch is handed out: the server may have changed.
        self.check_server: Callable[[int], None] | None = None
        self._when_missing = when_missing
        self._core: FeedCore | None = None

    @property
    def here(self) -> FeedCore | None:
        """The consumer of this process; a forked child must not touch its parent's."""
        core = self._core
        return None if core is None or core.is_inherited else core

    @property
    def core(self) -> FeedCore:
        """The same; attaches now if there is none."""
        core = self.here
        if core is None:
            core = FeedCore(**self.arguments, when_missing=self._when_missing)
            self._core = core
        return core

    def iterate(self) -> Batches | Epoch:
        """One epoch; nothing happens before its first batch is asked for."""
        core = self.here
        if core is not None and core.closed:
            raise FeedlineError(f'feed "{self.name}" is closed')
        is_bare = self.server_log is None and self.postprocess is None and not self.with_ids
        return core.iterate(self) if core is not None and is_bare else Epoch(self)

    def close(self) -> None:
        core, keeps, self.keeps = self.here, self.keeps, None
        if core is not None:
            core.close()
        if keeps is not None:
            keeps.stop()

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self.postprocess)
        except Exception as error:
            raise pickle.PicklingError(
                f'feed "{self.name}" cannot be pickled with its transform: {error}\n'
                "  use a function at the top of a module"
            ) from error
        return {**self.__dict__, "_core": None, **dict.fromkeys(_OF_THIS_PROCESS)}


class Epoch:
    """One epoch in which batches are not only handed on.

    Attaches when it is first asked, finishes each batch, has errors name the server's log. Not a
    generator: an exception from a signal handler would end a generator for good.
    """

    def __init__(self, attachment: Attachment) -> None:
        """Attach nothing yet."""
        self._attachment = attachment
        self._batches: Batches | None = None

    @property
    def samples(self) -> int:
        """How many samples the last batch had; a batch that travels whole counts as one."""
        return 0 if self._batches is None else self._batches.samples

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        attachment = self._attachment
        try:
            if self._batches is None:
                self._batches = attachment.core.iterate(attachment)
            batch = next(self._batches)
            if attachment.check_server is not None:
                attachment.check_server(attachment.core.stats()["server_pid"])
        except FeedlineError as error:
            raise noted(error, attachment.server_log) from error.__cause__
        if attachment.with_ids:
            batch, numbers = batch
            check_known(attachment.name, numbers)
            return self._finished(batch), numbers
        return self._finished(batch)

    def _finished(self, batch: Any) -> Any:
        attachment = self._attachment
        if attachment.postprocess is None:
            return batch
        try:
            return attachment.postprocess(batch)
        except StopIteration as error:
            # It would be taken for the epoch's end.
            raise RuntimeError(
                f'the transform of feed "{attachment.name}" raised {error!r}'
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Its place belongs to this process: a copy begins an epoch of its own."""
        return Epoch, (self._attachment,)


def noted(error: FeedlineError, server_log: Path | None) -> FeedlineError:
    """The same error, which says where to read what the server printed, if it printed anything.

    That explains no mismatch.
    """
    if isinstance(error, FeedMismatchError) or server_log is None or str(server_log) in str(error):
        return error
    # A server that ends as it should removes its log if that is empty; one whose loader failed
    # may be about to print.
    with contextlib.suppress(OSError):
        if server_log.stat().st_size > 0 or isinstance(error, LoaderError):
            error.args = (f"{error}\n  what its server printed: {server_log}",)
    return error
