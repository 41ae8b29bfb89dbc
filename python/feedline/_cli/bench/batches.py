"""How many samples a batch has, and a loader that can be iterated again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# This many parts show of which kind all are: every measured batch is checked.
_FEW = 16


def samples_in(batch: Any) -> int:
    """How many samples a batch has, which can only be guessed; one if it says nothing.

    The first field that has a length decides: the first dimension of an array, or the length of a
    list of samples. A list of strings or numbers counts if there is nothing else: it may be a size.
    """
    found = _length(batch)
    if found is None:
        found = _length(batch, flat=True)
    return 1 if found is None else found


def _length(part: Any, *, flat: bool = False) -> int | None:
    if (shape := getattr(part, "shape", None)) is not None:
        return int(shape[0]) if len(shape) else None
    parts = _parts(part)
    if isinstance(part, list | tuple) and parts:
        if all(isinstance(one, str | bytes | int | float | complex) for one in parts[:_FEW]):
            return len(parts) if flat else None
        if _are_samples(parts, flat=flat):
            return len(parts)
    return next((found for one in parts if (found := _length(one, flat=flat)) is not None), None)


def _parts(part: Any) -> list[Any]:
    if isinstance(part, Mapping):
        return list(part.values())
    if isinstance(part, list | tuple):
        return list(part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return [getattr(part, field.name) for field in dataclasses.fields(part)]
    return []


def _are_samples(parts: list[Any], *, flat: bool) -> bool:
    """Whether a list's parts are samples (images of many sizes), not fields (images, labels).

    Samples are of one kind. As fields, they would be of one length, which is the batch's size and
    rarely less than the number of fields: sixteen arrays of length 3 are sixteen images.
    """
    few = parts[:_FEW]
    if len(few) < 2 or len({_kind(part) for part in few}) > 1:
        return False
    lengths = [found for part in few if (found := _length(part, flat=flat)) is not None]
    if len(lengths) < len(few):
        return False
    return len(set(lengths)) > 1 or len(parts) > lengths[0]


def _kind(part: Any) -> Any:
    if hasattr(part, "shape"):
        return str(part.dtype), len(part.shape)
    if isinstance(part, Mapping):
        return frozenset(map(str, part))
    return type(part), tuple(map(_kind, _parts(part)[:_FEW])) if isinstance(part, tuple) else ()


def renewable(make: Callable[[], Any]) -> Any:
    """The loader; if it is an iterator, which lasts for one epoch only, a new one for each."""
    loader = make()
    return _Remade(loader, make) if hasattr(loader, "__next__") else loader


class _Remade:
    def __init__(self, first: Any, make: Callable[[], Any]) -> None:
        self._first, self._make = first, make

    def __iter__(self) -> Iterator[Any]:
        loader, self._first = self._first, None
        return iter(self._make() if loader is None else loader)


class NoBatchError(Exception):
    """An epoch had no batch."""


def endless(loader: Any) -> Iterator[Any]:
    """Epoch after epoch; an empty one is a ``NoBatchError``."""
    epoch = 0
    while True:
        batches = 0
        for batch in loader:
            batches += 1
            yield batch
        if batches == 0:
            which = "no batch" if epoch == 0 else f"batches in its first {epoch} epochs only"
            raise NoBatchError(
                f"the loader yielded {which}\n"
                "  give it data: it must yield at least one batch each time it is iterated"
            )
        epoch += 1
