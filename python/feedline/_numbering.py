"""Giving a server's batches the numbers of their samples."""

from __future__ import annotations

from typing import Any

import torch

from feedline._containers import with_each
from feedline._numbered import UNKNOWN, Numbered


def numbered(batch: Any, keys: list[Any], *, is_collated: bool, is_by_torch: bool) -> Numbered:
    """Give a batch its numbers.

    A sample that is not collated has one number, without a dimension: so it travels whole. A
    function of the user's may make more or fewer rows than samples: then no row has a number, but
    the batch is cut all the same, for those who don't ask.
    """
    numbers = torch.tensor([_number(key) for key in keys], dtype=torch.int64)
    if not is_collated:
        return Numbered(batch, numbers[0])
    if not is_by_torch:
        rows = _rows(batch)
        count = rows.pop() if len(rows) == 1 else None
        if count is not None and count != len(keys):
            return Numbered(batch, torch.full((count,), UNKNOWN))
    return Numbered(batch, numbers)


def _number(key: Any) -> int:
    if type(key) is int and UNKNOWN < key < -UNKNOWN:
        return key
    try:
        number = int(key.__index__())
    except (AttributeError, TypeError):  # a key of another kind, or several in an array
        return UNKNOWN
    return number if UNKNOWN < number < -UNKNOWN else UNKNOWN


def _rows(batch: Any) -> set[int | None]:
    """How many rows the leaves of a batch have; None for one that can have none."""
    rows: set[int | None] = set()

    def take(value: Any) -> Any:
        if hasattr(value, "shape"):
            rows.add(len(value) if value.shape else None)
        elif with_each(value, take) is value:
            rows.add(None)
        return value

    take(batch)
    return rows
