"""Batches with the numbers of their samples, as a server's loader yields them.

The numbers travel as one more field, 8 bytes for each sample, so they are right wherever a
consumer's batches are cut, and in whatever order batches come. A consumer gets them if it asks
(``with_ids=True``), and the batch alone otherwise. ``_numbering`` makes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from feedline._errors import FeedValueError

# In place of a number that nobody knows. No dataset has so many samples, counted from the end.
UNKNOWN = -(1 << 63)


class Numbered(NamedTuple):
    """A batch and its samples' numbers. The core knows it by the name of this module."""

    batch: Any
    numbers: Any


def check_known(name: str, numbers: Any) -> None:
    """Raise for a batch that came without its numbers."""
    if bool((numbers == UNKNOWN).any()):
        raise FeedValueError(
            f'with_ids=True: which samples this batch of feed "{name}" has can\'t be told: its '
            "collate_fn made more or fewer rows than samples, or its sampler yields keys that are "
            "no numbers\n  leave with_ids out, or have the collate_fn make a row of each sample"
        )
