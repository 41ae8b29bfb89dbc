"""Going through what a batch is made of: lists, tuples, mappings, records."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, MutableMapping
from typing import Any


def with_each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same container with ``change(item)`` for each of its items; anything else as it is."""
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)
        changed.update((key, change(item)) for key, item in value.items())
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    if isinstance(value, list | tuple):
        return type(value)(map(change, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: change(getattr(value, name)) for name in names})
    return value
