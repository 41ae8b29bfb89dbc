"""How many samples a batch has, and a loader that can be gone over again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def samples_in(batch: Any) -> int:
    """The length of the first field that has one; a batch without any is one sample."""
    found = _length(batch)
    return 1 if found is None else found


def _length(part: Any) -> int | None:
    shape = getattr(part, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(part, Mapping):
        return _first(list(part.values()))
    if isinstance(part, list | tuple):
        # Strings, numbers: one for each sample. Anything else is a nesting.
        is_flat = all(isinstance(one, str | bytes | int | float | complex) for one in part)
        return len(part) if is_flat and part else _first(list(part))
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return _first([getattr(part, field.name) for field in dataclasses.fields(part)])
    return None


def _first(parts: list[Any]) -> int | None:
    return next((found for part in parts if (found := _length(part)) is not None), None)


def renewable(make: Callable[[], Any]) -> Any:
    """The loader; if it is an iterator, which is used up after one epoch, one made for each."""
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
