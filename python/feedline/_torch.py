"""A feed that passes for a torch ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from feedline._core import FeedCore
from feedline._feed import Feed


class FeedDataset(IterableDataset[Any]):
    """Yields a feed's whole batches, for frameworks that rebuild the loader around its dataset."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed

    def __iter__(self) -> Iterator[Any]:
        return Feed.__iter__(self.feed)

    def __len__(self) -> int:
        return Feed.__len__(self.feed)

    def set_epoch(self, epoch: int) -> None:
        """See ``Feed.set_epoch``."""
        self.feed.set_epoch(epoch)


class TorchFeed(Feed, DataLoader[Any]):
    """A ``DataLoader`` without workers or batching of its own: the feed has done all that."""

    def __init__(self, arguments: dict[str, Any], core: FeedCore) -> None:
        """Made by ``attach``."""
        Feed.__init__(self, arguments, core)
        DataLoader.__init__(self, FeedDataset(self), batch_size=None, num_workers=0)

    # Straight to the feed: torch's own iterator would add 12 µs to each batch.
    __iter__ = Feed.__iter__  # type: ignore[assignment]
    __len__ = Feed.__len__
