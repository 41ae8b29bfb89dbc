"""From the producer's loop to the server's thread, one batch at a time.

producer's loop                          server's thread
  wait_for_room ─▶ load ─▶ put ──slot──▶ __next__ ─▶ copy into the ring
  end_epoch ─────────────────────────▶   StopIteration
  close ─────────────────────────────▶   StopIteration, and the feed is over
"""

from __future__ import annotations

import threading
from typing import Any, Self

from feedline import _stack
from feedline._errors import FeedlineError

_EMPTY = object()
_END = object()


class Handoff:
    """The loader that the server sees. Holds one batch, so that loading and copying overlap."""

    def __init__(self, batches: int | None) -> None:
        """Begin with nothing; `batches` is how many an epoch has, if that is sure."""
        self._batches = batches
        self._changed = threading.Condition()
        self._slot: Any = _EMPTY
        # Batches of the loop's epoch that the server has taken.
        self._taken = 0
        self._is_abandoned = False
        self._is_closed = False
        self._error: BaseException | None = None
        self._driver = threading.get_ident()
        # The core asks for it when an epoch turns out to be empty.
        self.feedline_is_over = False

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("the loader can't tell how many batches it has")
        return self._batches

    def __iter__(self) -> Self:
        """Begin an epoch of the feed; the loop's is over if the server has left it half-way."""
        with self._changed:
            if self._taken:
                self._taken = 0
                # A loop that has come to the end of the epoch needs no telling.
                self._is_abandoned = self._slot is not _END
                self._slot = _EMPTY
                self._changed.notify_all()
        return self

    def __next__(self) -> Any:
        """Wait for the loop."""
        with self._changed:
            me = threading.get_ident()
            # A thread that waits here waits for the loop, whose stack is the one to show.
            _stack.driven_by[me] = self._driver
            try:
                self._changed.wait_for(lambda: self._slot is not _EMPTY or self._is_closed)
            finally:
                del _stack.driven_by[me]
            if self._slot is _EMPTY:
                raise self._end()
            batch, self._slot = self._slot, _EMPTY
            self._changed.notify_all()
            if batch is _END:
                self._taken = 0
                raise StopIteration
            self._taken += 1
            return batch

    def _end(self) -> BaseException:
        if self._error is not None:
            return self._error
        if self._taken:
            left = "" if self._batches is None else f" of {self._batches}"
            return FeedlineError(
                f"the producer ended in the middle of an epoch, after {self._taken}{left} batches\n"
                "  let its loop run to the end before join()"
            )
        self.feedline_is_over = True
        return StopIteration()

    def wait_for_room(self, timeout_secs: float) -> bool:
        """Wait until a batch can be put, or the epoch was abandoned. False if the time was over."""
        with self._changed:
            self._driver = threading.get_ident()
            return self._changed.wait_for(
                lambda: self._slot is _EMPTY or self._is_abandoned, timeout_secs
            )

    def put(self, batch: Any) -> bool:
        """Hand over a batch, after `wait_for_room`. False if nobody needs this epoch any more."""
        return self._put(batch)

    def end_epoch(self) -> None:
        """End the loop's epoch, after `wait_for_room`."""
        self._put(_END)
        with self._changed:
            self._is_abandoned = False

    def _put(self, batch: Any) -> bool:
        with self._changed:
            if self._is_abandoned:
                return False
            self._slot = batch
            self._changed.notify_all()
            return True

    @property
    def is_abandoned(self) -> bool:
        """Whether everybody has left this epoch, and a newcomer waits for the next one."""
        return self._is_abandoned

    def close(self, error: BaseException | None = None) -> None:
        """End the feed after what was put, well or with an error."""
        with self._changed:
            self._is_closed = True
            self._error = error
            self._changed.notify_all()
