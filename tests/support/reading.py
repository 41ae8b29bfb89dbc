"""What a consumer got, and what it should have got: the check of every exactness test."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from support.loaders import EPOCH, content


@dataclass
class Reading:
    """Sizes of the batches, keys in the order of arrival, and whether every byte was right."""

    sizes: list[int]
    keys: list[int]
    exact: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def is_exact(batch: Any) -> bool:
    """Whether every byte of a numbered batch, torch or NumPy, is what its keys say."""
    x, keys = np.asarray(batch[0]), np.asarray(batch[1])
    return x.dtype == np.uint8 and bool(np.array_equal(x, content(keys, x.shape[1])))


def keys_of(batch: Any) -> list[int]:
    return [int(key) for key in np.asarray(batch[1])]


def read(batches: Iterable[Any], *, limit: int | None = None) -> Reading:
    """Take batches to the end of the epoch, or `limit` of them, and let go of each at once."""
    got = Reading([], [], True)
    for batch in itertools.islice(batches, limit):
        keys = keys_of(batch)
        got.sizes.append(len(keys))
        got.keys.extend(keys)
        got.exact = got.exact and is_exact(batch)
    return got


def cut(samples: int, batch_size: int, *, drop_last: bool = False) -> list[int]:
    """Give the sizes that an epoch of `samples` is cut into."""
    full, rest = divmod(samples, batch_size)
    return [batch_size] * full + ([rest] if rest and not drop_last else [])


def expected(
    epoch: int, samples: int, batch_size: int, *, drop_last: bool = False, start: int = 0
) -> Reading:
    """Give what a consumer that begins at sample `start` of an epoch must get."""
    sizes = cut(samples - start, batch_size, drop_last=drop_last)
    first = epoch * EPOCH + start
    return Reading(sizes, list(range(first, first + sum(sizes))), True)
