"""A feed that passes for a torch ``DataLoader``."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info

from feedline._errors import FeedlineError
from feedline._feed import Feed


class FeedDataset(IterableDataset[Any]):
    """Yields a feed's whole batches, for frameworks that rebuild the loader around its dataset."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed

    def __iter__(self) -> Iterator[Any]:
        """One epoch; of several workers of a DataLoader around this, the first one reads it."""
        if self.feed._seat.arguments["shard"] is not None and _accelerate_ranks() > 1:
            raise FeedlineError(
                f'feed "{self.feed.name}" is split by shard=, and Accelerate would split it again\n'
                "  leave one out: iterate the feed without prepare(), or attach without shard="
            )
        worker = get_worker_info()
        return iter(self.feed) if worker is None or worker.id == 0 else iter(())

    def __len__(self) -> int:
        return len(self.feed)

    def set_epoch(self, epoch: int) -> None:
        """See ``Feed.set_epoch``."""

    def state_dict(self) -> dict[str, Any]:
        """See ``Feed.state_dict``."""
        return self.feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Feed.load_state_dict``."""
        self.feed.load_state_dict(state)


class FeedSampler(Sampler[None]):
    """What torch asks before each batch; a feed needs no indices."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)

    def set_epoch(self, epoch: int) -> None:
        """See ``Feed.set_epoch``."""


def _accelerate_ranks() -> int:
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    return int(getattr(state, "_shared_state", {}).get("num_processes") or 1)


def _as_it_is(batch: Any) -> Any:
    return batch


class TorchFeed(Feed, DataLoader[Any]):
    """A ``DataLoader`` without workers or batching of its own: the feed has done all that.

    Everything is in ``dataset``, so that what frameworks make of it and of a DataLoader's keywords
    is again a feed.
    """

    def __init__(self, dataset: FeedDataset, **keywords: Any) -> None:
        """Made by ``attach``."""
        Feed.__init__(self, dataset.feed._seat)
        defaults = {"batch_size": None, "collate_fn": _as_it_is}
        DataLoader.__init__(self, dataset, **{**defaults, **keywords})
        # torch lets nobody give one together with an iterable dataset, nor set it afterwards.
        object.__setattr__(self, "sampler", FeedSampler())

        # Whoever made it anew may want what torch's own iterator does.
        is_as_it_is = self.collate_fn is _as_it_is and not self.pin_memory
        self._is_plain = is_as_it_is and self.num_workers == 0

    def __iter__(self) -> Any:
        """Straight to the feed: torch's own iterator would add 12 µs to each batch."""
        return Feed.__iter__(self) if self._is_plain else DataLoader.__iter__(self)

    __len__ = Feed.__len__


def torch_feed(feed: Feed) -> TorchFeed:
    """The same feed, as a ``DataLoader``."""
    return TorchFeed(FeedDataset(feed))


def finisher(
    transform: Callable[[Any], Any] | None, pin_memory: bool, device: Any
) -> Callable[[Any], Any]:
    """What to do with each batch: transform it, page-lock it, move it. Looks for the GPU now."""
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
    return Finish(transform, pin_memory, device)


@dataclasses.dataclass
class Finish:
    """Each batch, as the job wants it."""

    transform: Callable[[Any], Any] | None
    pin_memory: bool
    device: torch.device | None

    def __call__(self, batch: Any) -> Any:
        """Transform, page-lock and move a batch, in this order."""
        if self.transform is not None:
            batch = self.transform(batch)
        return self._move(batch)

    def _move(self, value: Any) -> Any:
        if hasattr(value, "to"):  # a tensor, or something that knows how to move its own
            if self.pin_memory and hasattr(value, "pin_memory"):
                value = value.pin_memory()
            return value if self.device is None else value.to(self.device, non_blocking=True)
        if isinstance(value, MutableMapping):
            moved = copy.copy(value)
            moved.update((key, self._move(item)) for key, item in value.items())
            return moved
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._move, value))
        if isinstance(value, list | tuple):
            return type(value)(map(self._move, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field.name for field in dataclasses.fields(value) if field.init]
            return dataclasses.replace(
                value, **{name: self._move(getattr(value, name)) for name in fields}
            )
        return value
