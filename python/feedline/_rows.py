"""A feed's samples one by one, for a ``DataLoader`` that batches them again.

A framework that takes a loader apart (Accelerate, torchdata) puts another ``DataLoader`` around its
dataset, with its batch size and its ``collate_fn``, and relies on the numbers of both: how many
samples there are, and how many of them are in a batch. So the dataset hands out rows, which cost
next to nothing, and ``join_rows`` finds that all rows of a batch are there and hands on the batch
itself, without a copy. For other batch sizes batches are cut and joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from feedline._attachment import Attachment
from feedline._containers import with_each


class Row:
    """One sample of a batch, cut out of it when it is looked at.

    Indexing, unpacking and attributes are the sample's: ``image, label = row``, ``row["image"]``.
    """

    __slots__ = ("batch", "count", "index")

    def __init__(self, batch: Any, index: int, count: int) -> None:
        """Sample ``index`` of a batch that has ``count``."""
        self.batch = batch
        self.index = index
        self.count = count

    @property
    def sample(self) -> Any:
        """The sample itself; its tensors point into the batch."""
        return _cut(self.batch, self.count, self.index)

    def __getitem__(self, key: Any) -> Any:
        return self.sample[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sample)

    def __len__(self) -> int:
        return len(self.sample)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and libraries ask an object for optional methods
            raise AttributeError(name)
        return getattr(self.sample, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the rest of its batch."""
        return Row, (_part(self, self), 0, 1)


class Rows:
    """The rows of an epoch's batches. Asks for a batch when its first row is asked for."""

    def __init__(self, attachment: Attachment, whole: int | None) -> None:
        """``whole``: what each batch counts for, where batches travel whole."""
        self._attachment = attachment
        self._batches = attachment.iterate()
        self._whole = whole
        self._before = (0, 0)
        self._batch: Any = None
        self.given = 0
        self.count = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        while self.given == self.count:
            self._batch = None
            before = self._attachment.core.position()
            self._batch = next(self._batches)
            self._before = before
            self.given, self.count = 0, self._whole or self._batches.samples
        row = Row(self._batch, self.given, self.count)
        self.given += 1
        return row

    def place(self, after: dict[str, Any]) -> dict[str, Any]:
        """Where the next row is, from the feed's position after its batch."""
        if after["sample"] >= self.count:
            return {**after, "sample": after["sample"] - self.count + self.given}
        # The batch was its epoch's last.
        epoch = after["epoch"] - 1
        first = self._before[1] if self._before[0] == epoch else 0
        return {**after, "epoch": epoch, "sample": first + self.given}


def join_rows(rows: Sequence[Row]) -> Any:
    """The batch that the rows are of, or one cut and joined from theirs."""
    parts = []
    first = last = rows[0]
    for row in rows[1:]:
        if row.batch is not last.batch or row.index != last.index + 1:
            parts.append(_part(first, last))
            first = row
        last = row
    parts.append(_part(first, last))
    return parts[0] if len(parts) == 1 else _joined(parts)


def _part(first: Row, last: Row) -> Any:
    until = last.index + 1
    if (first.index, until) == (0, first.count):
        return first.batch
    return _cut(first.batch, first.count, slice(first.index, until))


def _cut(batch: Any, count: int, which: int | slice) -> Any:
    """One or some of a batch's ``count`` samples."""

    def cut(value: Any) -> Any:
        if hasattr(value, "shape"):
            if len(value.shape) == 0 or len(value) != count:
                raise _not_cuttable(f"{count} samples have become shape {tuple(value.shape)}")
            return value[which]
        changed = with_each(value, cut)
        if changed is value and value is not None:
            raise _not_cuttable(f"a {type(value).__name__} has no samples to cut out")
        return changed

    return cut(batch)


def _not_cuttable(why: str) -> TypeError:
    return TypeError(
        f"this batch of a feed cannot be cut: {why}\n"
        "  attach with the batch size that is wanted here: batch_size=..."
    )


def _joined(parts: list[Any]) -> Any:
    def leaves(value: Any) -> list[Any]:
        found = []

        def take(item: Any) -> Any:
            if not hasattr(item, "shape"):
                return with_each(item, take)
            found.append(item)
            return item

        take(value)
        return found

    joined = (_concatenated(same) for same in zip(*map(leaves, parts), strict=True))

    def put(item: Any) -> Any:
        return next(joined) if hasattr(item, "shape") else with_each(item, put)

    return put(parts[0])


def _concatenated(arrays: tuple[Any, ...]) -> Any:
    return torch.cat(arrays) if torch.is_tensor(arrays[0]) else numpy.concatenate(arrays)


# For a DataLoader that is put around the dataset without a collate_fn.
default_collate_fn_map[Row] = lambda rows, *, collate_fn_map=None: join_rows(rows)
