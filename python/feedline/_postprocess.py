"""What is done with each batch before the job gets it: transform, page-lock, move to a device."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch

from feedline._containers import with_each
from feedline._errors import FeedlineError


def postprocessor(
    transform: Callable[[Any], Any] | None, pin_memory: bool, device: Any
) -> Callable[[Any], Any]:
    """What to do with each batch: transform it, page-lock it, move it. The GPU is checked now."""
    if pin_memory and not torch.accelerator.is_available():
        raise FeedlineError(
            "pin_memory=True is for copies to a GPU, and torch finds none here\n"
            "  leave it out: batches in host memory need no pinning"
        )
    if device is not None:
        try:
            device = torch.device(device)
            torch.empty(0, device=device)
        except Exception as error:
            raise FeedlineError(
                f'device="{device}" cannot be used: {str(error).splitlines()[0]}\n'
                "  leave device out to get batches in host memory"
            ) from error
    return Postprocess(transform, pin_memory, device)


def _record(device: torch.device) -> Callable[[], torch.Event] | None:
    """Mark a moment in the device's queue; None for one that has copied when ``to`` returns."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or device.type != accelerator.type:
        return None

    def record() -> torch.Event:
        event = torch.Event(device)
        event.record(torch.accelerator.current_stream(device))
        return event

    return record


class Copies:
    """Copies to a device that may not have happened yet, with what they read from.

    ``to(non_blocking=True)`` returns before the device has read the batch, whose bytes the server
    may overwrite as soon as nobody holds them. Never run on a GPU so far: tested with events that
    stand for a device's.
    """

    # How far the loop may be ahead of the device: each copy holds a batch in the ring.
    MOST = 4

    def __init__(self, record: Callable[[], Any] | None) -> None:
        """``record`` gives an event that comes after all work that the device has got so far."""
        self._record = record
        self._waiting: collections.deque[tuple[Any, Any]] = collections.deque()

    def hold(self, source: Any) -> None:
        """Keep what was just copied from until that is done; let go of earlier ones that are."""
        if self._record is None:
            return
        self._waiting.append((self._record(), source))
        if len(self._waiting) > self.MOST:
            self._waiting[0][0].synchronize()
        while self._waiting and self._waiting[0][0].query():
            self._waiting.popleft()


class Postprocess:
    """Each batch, as the job wants it."""

    def __init__(
        self,
        transform: Callable[[Any], Any] | None,
        pin_memory: bool,
        device: torch.device | None,
        copies: Copies | None = None,
    ) -> None:
        """Keep what to do."""
        self.transform = transform
        self.pin_memory = pin_memory
        self.device = device
        self._copies = copies or Copies(None if device is None else _record(device))

    def __call__(self, batch: Any) -> Any:
        """Transform, page-lock and move a batch, in this order."""
        if self.transform is not None:
            batch = self.transform(batch)
        if self.pin_memory:
            batch = self._pinned(batch)
        if self.device is None:
            return batch
        moved = self._moved(batch)
        self._copies.hold(batch)
        return moved

    def _pinned(self, value: Any) -> Any:
        if hasattr(value, "pin_memory"):
            return value.pin_memory()
        return value if hasattr(value, "to") else with_each(value, self._pinned)

    def _moved(self, value: Any) -> Any:
        if hasattr(value, "to"):  # a tensor, or an object that can move itself
            return value.to(self.device, non_blocking=True)
        return with_each(value, self._moved)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies that are under way belong to this process."""
        return Postprocess, (self.transform, self.pin_memory, self.device)
