"""One epoch of a ``feedline.DataLoader``: its batches, one after the other, and where it is."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import _utils

from feedline._in_process import InProcess
from feedline._pool import Pool, Raised
from feedline._sampler_errors import beyond_the_dataset
from feedline.orders import Order

if TYPE_CHECKING:
    from feedline._dataloader import DataLoader


@dataclasses.dataclass
class Place:
    """Where an epoch is. The loader keeps it when the iterator is gone."""

    epoch: int
    given: int
    """How many samples were handed out."""
    sampler_rng: Any = None
    """What a sampler's generator was like before the epoch."""
    is_over: bool = False


class Epoch:
    """One epoch of a loader: its batches, one after the other."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._keys: Iterator[list[Any]] | None = None
        self._pool: Pool | None = None
        self._in_process: InProcess | None = None
        self._waiting: dict[int, list[Any]] = {}
        self._place = Place(0, 0)

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._place.is_over:
            raise StopIteration
        if self._keys is None:
            self._keys = self._begin()
        try:
            keys, batch = self._serial() if self._loader.num_workers == 0 else self._pooled()
        except StopIteration:
            self._end()
            raise
        except Raised as raised:
            self._raise(raised)
        self._place.given += len(keys)
        if self._is_at_end():
            self._end()
        if self._loader.pin_memory and torch.accelerator.is_available():
            batch = _utils.pin_memory.pin_memory(batch)
        if self._loader._with_ids:
            ids = torch.tensor(keys) if all(type(key) is int for key in keys) else keys
            return batch, ids
        return batch

    next = __next__

    def _begin(self) -> Iterator[list[Any]]:
        loader = self._loader
        resume = loader._resume
        epoch = loader._epoch if resume is None else resume["epoch"]
        self._place = Place(epoch, 0 if resume is None else resume["sample"])
        loader.seed  # noqa: B018  drawn now, if it was not given
        if loader._orders_itself:
            keys = _planned(loader, self._place)
        else:
            keys = self._sampled(None if resume is None else resume.get("sampler_rng"))
        if loader.num_workers == 0:
            self._in_process = loader._in_process()
        else:
            self._pool = loader._start_pool(epoch)
            self._pool.serve(self._place)
        # What raises has begun nothing.
        loader._epoch, loader._place, loader._resume = epoch + 1, self._place, None
        return keys

    def _sampled(self, rng: Any) -> Iterator[list[Any]]:
        loader = self._loader
        sampler: Any = loader.sampler if loader._batches_itself else loader.batch_sampler
        inner = getattr(sampler, "sampler", None)
        if isinstance(inner, Order):
            inner.begin(loader.seed, self._place.epoch)
        generator = getattr(sampler, "generator", None)
        generator = generator if isinstance(generator, torch.Generator) else torch.default_generator
        before = generator.get_state()
        if rng is not None:
            generator.set_state(rng)
        self._place.sampler_rng = before if rng is None else rng
        keys = iter(sampler)
        first = list(itertools.islice(keys, 1))
        if rng is not None:
            generator.set_state(before)
        keys = itertools.chain(first, keys)
        if not loader._batches_itself:
            return _skip_batches(map(list, keys), self._place.given)
        skipped = itertools.islice(keys, self._place.given, None)
        return _batched(skipped, loader.batch_size or 1, drop_last=loader.drop_last)

    def _serial(self) -> tuple[list[Any], Any]:
        assert self._in_process is not None
        assert self._keys is not None
        keys = next(self._keys)
        try:
            return keys, self._in_process.batch(keys, self._place.epoch)
        except Exception as error:
            # It is left out, as it would be with workers.
            self._place.given += len(keys)
            if better := beyond_the_dataset(error, keys, self._loader):
                raise better from error
            raise

    def _pooled(self) -> tuple[list[Any], Any]:
        pool = self._pool
        assert pool is not None
        assert self._keys is not None
        if not pool.serves(self._place):
            raise RuntimeError(
                "a later iteration of this loader has taken its workers\n"
                "  with persistent_workers=True there is one at a time"
            )
        while pool.has_room:
            keys = next(self._keys, None)
            if keys is None:
                break
            self._waiting[pool.offer(keys, self._place.epoch)] = keys
        if pool.is_idle:
            raise StopIteration
        number, batch = pool.take()
        return self._waiting.pop(number), batch

    def _is_at_end(self) -> bool:
        loader = self._loader
        if not loader._orders_itself:
            return False
        left = len(loader._plan()) - self._place.given
        return left < (loader.batch_size or 1) if loader.drop_last else left <= 0

    def _raise(self, raised: Raised) -> None:
        keys = self._waiting.pop(raised.number)
        self._place.given += len(keys)
        if raised.wrapped is not None:
            try:
                raised.wrapped.reraise()
            except BaseException as error:
                if better := beyond_the_dataset(error, keys, self._loader):
                    raise better from error
                # How it came here is nobody's concern.
                raise error from None
        assert self._pool is not None
        raise self._pool.lost(keys[raised.sample], raised.tries) from None

    def _end(self) -> None:
        self._place.is_over = True
        if self._pool is not None and self._pool is not self._loader._pool:
            self._pool.close()
        self._pool = None


def _planned(loader: DataLoader[Any], place: Place) -> Iterator[list[Any]]:
    size, first = loader.batch_size or 1, place.given
    samples, order = len(loader._plan()), loader._order
    while samples - first >= (size if loader.drop_last else 1):
        count = min(size, samples - first)
        # Asked for anew: a mixture's weights may have changed for what is to come.
        numbers = loader._plan().numbers(loader.seed, place.epoch, first, count)
        first += count
        if order is not None:
            order.dealt_out(place.epoch * samples + first)
        yield numbers


def _batched(keys: Iterator[Any], size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    while len(batch := list(itertools.islice(keys, size))) == size:
        yield batch
    if batch and not drop_last:
        yield batch


def _skip_batches(batches: Iterator[list[Any]], samples: int) -> Iterator[list[Any]]:
    for batch in batches:
        if 0 < samples >= len(batch):
            samples -= len(batch)
        else:
            yield batch[samples:]
            samples = 0
