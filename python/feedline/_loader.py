"""What can be learnt of a loader without iterating it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any


def check_loader(loader: object) -> None:
    """Raise a ``TypeError`` for what isn't a loader."""
    if isinstance(loader, str | bytes | dict):
        raise TypeError(
            f"a loader is an iterable of batches, not a {type(loader).__name__}\n"
            "  pass a DataLoader, a list of batches, or any object whose iter() yields batches"
        )
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        hint = "call it first" if callable(loader) else "pass a DataLoader, a list, a generator"
        raise TypeError(
            f"a loader is an iterable of batches; {type(loader).__name__} is not iterable\n  {hint}"
        )


def is_one_shot(loader: object) -> bool:
    """Whether a second epoch would be empty: generators, iterators of the standard library."""
    if isinstance(loader, types.GeneratorType):
        return True
    return hasattr(loader, "__next__") and type(loader).__module__ in ("builtins", "itertools")


def length_of(loader: Any) -> tuple[int | None, int | None]:
    """Samples and batches per epoch, each None where the loader can't tell exactly."""
    return _samples(loader), _batches(loader)


def _batches(loader: Any) -> int | None:
    dataset = getattr(loader, "dataset", None)
    if dataset is not None and not hasattr(dataset, "__getitem__"):
        return None  # torch guesses the length of an iterable dataset
    return _len(loader)


def _samples(loader: Any) -> int | None:
    """Tell a torch DataLoader's samples: those of its sampler, less a tail that it drops."""
    batch_size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "sampler", None)
    dataset = getattr(loader, "dataset", None)
    if not isinstance(batch_size, int) or sampler is None or not hasattr(dataset, "__getitem__"):
        return None
    samples = _len(sampler)
    if samples is None:
        return None
    return samples // batch_size * batch_size if getattr(loader, "drop_last", False) else samples


def _len(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # whatever it raises, it can't tell
        return None


def begin_epoch(loader: Any) -> Callable[[int], None]:
    """What to do before each epoch: tell it to samplers and datasets that shuffle by epoch."""
    candidates = [loader]
    for path in (("sampler",), ("batch_sampler",), ("batch_sampler", "sampler"), ("dataset",)):
        found = loader
        for part in path:
            found = getattr(found, part, None)
        candidates.append(found)
    told: list[Callable[[int], None]] = []
    for candidate in candidates:
        method = getattr(candidate, "set_epoch", None)
        if callable(method) and method not in told:
            told.append(method)

    def begin(epoch: int) -> None:
        for method in told:
            method(epoch)

    return begin
