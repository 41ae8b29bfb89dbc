"""What can be known about a loader without iterating it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy

from feedline._core import PoolReport


class NotALoaderError(TypeError):
    """What isn't a loader: why, and what to do, or what to give instead."""

    def __init__(self, what: str, *, hint: str = "", give: str = "") -> None:
        """Word it for a caller who passes a loader; ``give`` says what to pass instead."""
        super().__init__(f"{what}\n  {hint or f'pass {give}'}")
        self.what, self.hint, self.give = what, hint, give


def check_loader(loader: object) -> None:
    """Raise a ``TypeError`` for what isn't a loader."""
    if isinstance(loader, str | bytes | dict):
        raise NotALoaderError(
            f"a loader is an iterable of batches, not a {type(loader).__name__}",
            give="a DataLoader, a list of batches, or any object whose iter() yields batches",
        )
    _check_is_no_dataset(loader)
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise NotALoaderError(
            f"a loader is an iterable of batches; {type(loader).__name__} is not iterable",
            hint="call it first" if callable(loader) else "",
            give="a DataLoader, a list, a generator",
        )


def _check_is_no_dataset(loader: object) -> None:
    """Refuse a dataset, whose samples would each be taken for a batch."""
    torch = sys.modules.get("torch")
    if isinstance(loader, numpy.ndarray) or (torch and isinstance(loader, torch.Tensor)):
        raise NotALoaderError(
            f"a loader is an iterable of batches, not one {type(loader).__name__}",
            give="a list of batches, such as tensor.split(64), or a DataLoader",
        )
    data = sys.modules.get("torch.utils.data")
    if data and isinstance(loader, data.Dataset) and not isinstance(loader, data.IterableDataset):
        raise NotALoaderError(
            f"a loader is an iterable of batches, not a Dataset ({type(loader).__name__})",
            hint="wrap it: DataLoader(dataset, batch_size=64, shuffle=True)",
        )


def is_one_shot(loader: object) -> bool:
    """Whether a second epoch would be empty: generators, iterators of the standard library."""
    if isinstance(loader, types.GeneratorType):
        return True
    return hasattr(loader, "__next__") and type(loader).__module__ in ("builtins", "itertools")


class Anew:
    """What a generator function yields; it is called anew for each epoch."""

    def __init__(self, generate: Callable[[], Iterable[Any]]) -> None:
        """Keep a generator function."""
        self._generate = generate

    def __iter__(self) -> Iterator[Any]:
        return iter(self._generate())


def made_by(make_loader: Callable[[], Any]) -> Any:
    """The loader; one that can be iterated again where the function is a generator's."""
    loader = make_loader()
    return Anew(make_loader) if isinstance(loader, types.GeneratorType) else loader


class Length(NamedTuple):
    """How long an epoch is; None where the loader can't tell exactly."""

    samples: int | None
    batches: int | None
    batch_size: int | None


def length_of(loader: Any) -> Length:
    """What the loader can tell: a torch DataLoader over a map-style dataset tells all."""
    if _is_a_guess(loader):
        return Length(None, None, None)
    samples, batch_size = _samples(loader)
    return Length(samples, _len(loader), batch_size)


def _is_a_guess(loader: Any) -> bool:
    """Whether it is a torch DataLoader of an iterable dataset, whose length torch guesses."""
    data = sys.modules.get("torch.utils.data")
    dataset = getattr(loader, "dataset", None)
    return data is not None and isinstance(dataset, data.IterableDataset)


def _samples(loader: Any) -> tuple[int | None, int | None]:
    """Tell the samples of a DataLoader's sampler, less a tail that it drops, and its batch size."""
    batch_size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "sampler", None)
    samples = None if sampler is None else _len(sampler)
    if not isinstance(batch_size, int) or batch_size < 1 or samples is None:
        return None, None
    if getattr(loader, "drop_last", False):
        samples = samples // batch_size * batch_size
    return samples, batch_size


def _len(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # whatever it raises, the length is unknown
        return None


def is_sequential(loader: Any) -> bool:
    """Whether its epochs are known to come in the same order in every run."""
    if isinstance(loader, list | tuple):
        return True
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader) or _is_a_guess(loader):
        return False
    batches = loader.batch_sampler
    sampler = loader.sampler if batches is None else getattr(batches, "sampler", None)
    # A class of the user's own may do anything.
    return (
        type(loader).__iter__.__module__.partition(".")[0] in ("torch", "torchdata")
        and (batches is None or type(batches) is data.BatchSampler)
        and type(sampler) is data.SequentialSampler
        and bool(getattr(loader, "in_order", True))
    )


def seed_of_run(run: int) -> int:
    """Return the seed of a shared loader that was given none: the same after a restart."""
    return run % (1 << 63)


def pool_of(loader: Any) -> PoolReport | None:
    """Where the workers' numbers are, if it is a loader of ours that has workers."""
    report = getattr(loader, "_pool_report", None)
    pool = report() if callable(report) else None
    return pool if isinstance(pool, PoolReport) else None


def seed_of_order(order: str) -> int | None:
    """Return the seed of a loader of ours, by what its feed says of its order; else None."""
    seed, is_ours, _ = order.partition(": ")
    kind, _, number = seed.partition(" ") if is_ours else ("", "", "")
    if kind == "seed":
        return int(number)
    return seed_of_run(int(number, 16)) if kind == "run" else None


def begin_epoch(loader: Any, *, but: object = None) -> Callable[[int], None]:
    """What to do before each epoch: tell it to samplers and datasets that shuffle by epoch.

    ``but`` is a method of the loader that is left out.
    """
    candidates = [loader]
    for path in (("sampler",), ("batch_sampler",), ("batch_sampler", "sampler"), ("dataset",)):
        found = loader
        for part in path:
            found = getattr(found, part, None)
        candidates.append(found)
    told: list[Callable[[int], None]] = []
    for candidate in candidates:
        method = getattr(candidate, "set_epoch", None)
        if callable(method) and method not in told and method != but:
            told.append(method)

    def begin(epoch: int) -> None:
        for method in told:
            method(epoch)

    return begin
