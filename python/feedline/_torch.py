"""A feed as a torch ``DataLoader``."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info

from feedline._errors import FeedlineError
from feedline._feed import Feed as PlainFeed
from feedline._rows import Rows, join_rows

_ASK_THE_ORIGINAL = (
    ": it yields the feed's samples, one after the other\n"
    "  keep a reference to the loader's own dataset, and ask that one"
)


class FeedDataset(IterableDataset[Any]):
    """A feed's samples, for frameworks that make a loader anew around them.

    With a ``batch_size`` its items are rows, which ``join_rows`` makes batches of again. Without
    one, which is where the loader's batches have sizes of their own, an item is a whole batch.
    """

    def __init__(self, feed: PlainFeed) -> None:
        super().__init__()
        core = feed._attachment.core
        asked = feed._attachment.arguments["batch_size"]
        self.feed = feed
        # Decided once: a loader around this goes on to batch as it began.
        self.batch_size: int | None = asked or core.batch_size
        is_as_yielded = asked is None or core.is_whole_as_asked
        is_whole = is_as_yielded and core.stats()["loader_batch_size"] is None
        self._whole = self.batch_size if is_whole else None
        self._rows: weakref.ref[Rows] | None = None

    @property
    def drop_last(self) -> bool:
        """Whether an epoch's last, smaller batch is left out. One that travels whole never is."""
        cuts = self.batch_size is not None and self._whole is None
        return cuts and bool(self.feed._attachment.arguments["drop_last"])

    def __iter__(self) -> Iterator[Any]:
        """One epoch; of several workers of a DataLoader around this, the first one reads it."""
        attachment = self.feed._attachment
        if attachment.arguments["shard"] is not None and _accelerate_ranks() > 1:
            raise FeedlineError(
                f'feed "{self.feed.name}" is split by shard=, and Accelerate would split it again\n'
                "  leave one out: iterate the feed without prepare(), or attach without shard="
            )
        worker = get_worker_info()
        if worker is not None and worker.id != 0:
            return iter(())
        if self.batch_size is None:
            return attachment.iterate()
        rows = Rows(attachment, self._whole)
        self._rows = weakref.ref(rows)
        return rows

    def __len__(self) -> int:
        """Samples per epoch, of all ranks together; batches, where ``batch_size`` is None.

        A ``TypeError`` until that is known.
        """
        if self.batch_size is None:
            return len(self.feed)
        samples = self.feed._attachment.core.samples_per_epoch()
        if samples is None:
            raise self.feed._length_unknown()
        return samples

    def __getitem__(self, index: Any) -> Any:
        """Always an error: the samples come in the feed's order."""
        raise NotImplementedError(f"{self._called()} cannot be indexed{_ASK_THE_ORIGINAL}")

    def __getattr__(self, name: str) -> Any:
        """Say where to find what isn't here."""
        text = f"{self._called()} has no attribute {name!r}{_ASK_THE_ORIGINAL}"
        raise AttributeError(text, name=name, obj=self)

    def _called(self) -> str:
        feed = self.__dict__.get("feed")  # a copy whose attributes are not restored yet has none
        return "the dataset of a feed" if feed is None else f'the dataset of feed "{feed.name}"'

    def set_epoch(self, epoch: int) -> None:
        """See ``Feed.set_epoch``."""

    def state_dict(self) -> dict[str, Any]:
        """See ``Feed.state_dict``."""
        rows = None if self._rows is None else self._rows()
        state = self.feed.state_dict()
        if rows is None or rows.given == rows.count:
            return state
        if self._whole is not None or self.feed._attachment.arguments["shard"] is not None:
            raise FeedlineError(
                f'feed "{self.feed.name}" cannot go on in the middle of a batch\n'
                "  give the loader around it the feed's own batch_size"
            )
        # In the middle of a batch that a loader around this one cuts into others.
        return rows.place(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Feed.load_state_dict``."""
        self.feed.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}


class FeedSampler(Sampler[None]):
    """What torch asks before each batch; a feed needs no indices."""

    def __init__(self, dataset: FeedDataset) -> None:
        """Keep what it samples."""
        self._dataset = dataset

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)

    def __len__(self) -> int:
        """Samples per epoch of this rank, as a ``DistributedSampler`` counts them."""
        shard = self._dataset.feed._attachment.arguments["shard"]
        if shard is None or self._dataset.batch_size is None:
            return len(self._dataset)
        world_size: int = shard[1]
        return -(-len(self._dataset) // world_size)

    def set_epoch(self, epoch: int) -> None:
        """See ``Feed.set_epoch``."""


def _accelerate_ranks() -> int:
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    return int(getattr(state, "_shared_state", {}).get("num_processes") or 1)


def _as_it_is(batch: Any) -> Any:
    return batch


class Feed(PlainFeed, DataLoader[Any]):
    """A ``DataLoader`` without workers: the feed has loaded and batched already.

    Its class has the name that users know: frameworks show it in messages and warnings.

    Everything is in ``dataset``, so that what frameworks make of it and of a DataLoader's keywords
    is again a feed, with the same numbers.
    """

    dataset: FeedDataset

    def __init__(self, dataset: FeedDataset, **keywords: Any) -> None:
        """Made by ``attach``."""
        PlainFeed.__init__(self, dataset.feed._attachment)
        size, drop_last = dataset.batch_size, dataset.drop_last
        if keywords.get("batch_size", size) is None:
            keywords = {**keywords, "batch_size": size}
        collate_fn = _as_it_is if size is None else join_rows
        defaults = {"batch_size": size, "drop_last": drop_last, "collate_fn": collate_fn}
        DataLoader.__init__(self, dataset, **{**defaults, **keywords})
        # torch doesn't accept one together with an iterable dataset, nor lets it be set afterwards.
        sampler = FeedSampler(dataset)
        object.__setattr__(self, "sampler", sampler)
        batch_sampler: Any = self.batch_sampler
        if batch_sampler is not None:
            batch_sampler.sampler = sampler

        # A framework that made it anew may want other batches, or what torch's own iterator does.
        self._has_own_batches = (self.batch_size, self.drop_last) == (size, drop_last)
        is_as_it_is = self.collate_fn is collate_fn and not self.pin_memory
        self._is_plain = self._has_own_batches and is_as_it_is and self.num_workers == 0

    def __iter__(self) -> Any:
        """Straight to the feed: torch's own iterator would add 12 µs to each batch."""
        return PlainFeed.__iter__(self) if self._is_plain else DataLoader.__iter__(self)

    def __len__(self) -> int:
        """Batches per epoch; see ``Feed``."""
        return PlainFeed.__len__(self) if self._has_own_batches else DataLoader.__len__(self)


def torch_feed(feed: PlainFeed) -> Feed:
    """The same feed, as a ``DataLoader``."""
    return Feed(FeedDataset(feed))
