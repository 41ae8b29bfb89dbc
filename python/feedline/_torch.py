"""A feed that passes for a torch ``DataLoader``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
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
        """One epoch; workers of a DataLoader around this take turns, and keep the feed's order."""
        batches = iter(self.feed)
        worker = get_worker_info()
        if worker is None:
            return batches
        return itertools.islice(batches, worker.id, None, worker.num_workers)

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


class TorchFeed(Feed, DataLoader[Any]):
    """A ``DataLoader`` without workers or batching of its own: the feed has done all that.

    Everything is in ``dataset``, so that what frameworks make of it and of a DataLoader's keywords
    is again a feed.
    """

    def __init__(self, dataset: FeedDataset, **keywords: Any) -> None:
        """Made by ``attach``."""
        Feed.__init__(self, dataset.feed._seat)
        DataLoader.__init__(self, dataset, **{"batch_size": None, **keywords})
        # torch lets nobody give one together with an iterable dataset, nor set it afterwards.
        object.__setattr__(self, "sampler", FeedSampler())

    # Straight to the feed: torch's own iterator would add 12 µs to each batch.
    __iter__ = Feed.__iter__  # type: ignore[assignment]
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
        if isinstance(value, torch.Tensor):
            if self.pin_memory and value.device.type == "cpu":
                value = value.pin_memory()
            return value if self.device is None else value.to(self.device, non_blocking=True)
        if isinstance(value, dict):
            return type(value)((key, self._move(item)) for key, item in value.items())
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
