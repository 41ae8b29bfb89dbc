"""One epoch of a ``feedline.DataLoader``: its batches, one after the other, and where it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import _utils

from feedline._in_process import InProcess
from feedline._place import (
    Place,
    Step,
    batched,
    generator_state,
    generator_text,
    is_over,
    own_batches,
    planned_steps,
)
from feedline._pool import Pool, Raised
from feedline._sampler_errors import beyond_the_dataset
from feedline._thread_worker import Raised as RaisedHere
from feedline.orders import Order

if TYPE_CHECKING:
    from feedline._core import Filling
    from feedline._dataloader import DataLoader


class Epoch:
    """One epoch of a loader: its batches, one after the other."""

    def __init__(self, loader: DataLoader[Any], filling: Filling | None = None) -> None:
        """Begin with the first batch; ``filling`` is for the server that iterates, if one does."""
        self._loader = loader
        self._filling = filling
        self._steps: Iterator[Step] | None = None
        self._pool: Pool | None = None
        self._in_process: InProcess | None = None
        self._waiting: dict[int, Step] = {}
        # One that could not be dealt out yet.
        self._held: Step | None = None
        self._place = Place(0, 0)
        # How many samples the epoch has, where that is known.
        self._samples: int | None = None

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._place.is_over:
            raise StopIteration
        if self._steps is None:
            self._steps = self._begin()
        try:
            taken = self._serial() if self._loader.num_workers == 0 else self._pooled()
            if taken is None:
                # Not a batch: the server is asked for a place.
                return self._filling
            step, batch = taken
        except StopIteration:
            self._end()
            raise
        except Raised as raised:
            self._raise(raised)
        self._place.hand_out(step)
        if self._is_at_end():
            self._end()
        if batch is self._filling and self._filling is not None:
            if self._loader._is_served:
                self._filling.number(self._loader._numbered(None, step.keys).numbers.tolist())
            return batch
        if self._loader.pin_memory and torch.accelerator.is_available():
            batch = _utils.pin_memory.pin_memory(batch)
        if self._loader._is_served:
            return self._loader._numbered(batch, step.keys)
        if self._loader._with_ids:
            keys = step.keys
            ids = torch.tensor(keys) if all(type(key) is int for key in keys) else keys
            return batch, ids
        return batch

    next = __next__

    def _begin(self) -> Iterator[Step]:
        loader = self._loader
        resume = loader._resume
        epoch = loader._epoch if resume is None else resume["epoch"]
        self._place = Place(epoch, 0)
        if resume is not None:
            ahead = [(first, end) for first, end in resume.get("ahead", [])]
            self._place = Place(epoch, resume["sample"], ahead)
        loader.seed  # noqa: B018  drawn now, if it was not given
        if loader._orders_itself:
            self._samples = len(loader._plan())
            steps = planned_steps(loader, self._place)
        else:
            steps = self._sampled(None if resume is None else resume.get("sampler_rng"))
        if loader.num_workers == 0:
            self._in_process = loader._in_process()
        else:
            self._pool = loader._start_pool(epoch, self._filling)
            self._pool.serve(self._place)
        # What raises has begun nothing.
        loader._epoch, loader._place, loader._resume = epoch + 1, self._place, None
        return steps

    def _sampled(self, resumed: str | None) -> Iterator[Step]:
        loader = self._loader
        sampler: Any = loader.sampler if loader._batches_itself else loader.batch_sampler
        inner = getattr(sampler, "sampler", None)
        if isinstance(inner, Order):
            inner.begin(loader.seed, self._place.epoch)
        generator = getattr(sampler, "generator", None)
        generator = generator if isinstance(generator, torch.Generator) else torch.default_generator
        before, rng = generator.get_state(), generator_state(resumed)
        if rng is not None:
            generator.set_state(rng)
        self._place.sampler_rng = resumed or generator_text(before)
        keys = iter(sampler)
        first = list(itertools.islice(keys, 1))
        if rng is not None:
            generator.set_state(before)
        keys = itertools.chain(first, keys)
        if not loader._batches_itself:
            return own_batches(keys, self._place)
        return batched(keys, self._place, loader.batch_size or 1, drop_last=loader.drop_last)

    def _serial(self) -> tuple[Step, Any]:
        assert self._in_process is not None
        assert self._steps is not None
        step = next(self._steps)
        try:
            return step, self._in_process.batch(step.keys, self._place.epoch)
        except Exception as error:
            # It is left out, as it would be with workers.
            self._place.hand_out(step)
            if better := beyond_the_dataset(error, step.keys, self._loader):
                raise better from error
            raise

    def _pooled(self) -> tuple[Step, Any] | None:
        """Return the next batch, or None where the server that iterates is to be asked first."""
        pool = self._pool
        assert pool is not None
        assert self._steps is not None
        if not pool.serves(self._place):
            raise RuntimeError(
                "a later iteration of this loader has taken its workers\n"
                "  with persistent_workers=True there is one at a time"
            )
        while True:
            while pool.has_room:
                step = self._held or next(self._steps, None)
                if step is None:
                    break
                number = pool.offer(step.keys, self._place.epoch)
                if number is None:
                    self._held = step
                    if pool.asks:
                        return None
                    break
                self._held = None
                self._waiting[number] = step
            is_held_up = self._held is not None
            if pool.is_idle and not is_held_up:
                raise StopIteration
            taken = pool.take(is_held_up=is_held_up)
            if taken is not None:
                return self._waiting.pop(taken[0]), taken[1]

    def feedline_take_back(self) -> bool:
        """Nobody needs the rest: whether somebody may still write to the server's ring."""
        return self._pool is not None and self._pool.take_back()

    def _is_at_end(self) -> bool:
        samples = self._samples
        return samples is not None and is_over(self._loader, self._place, samples)

    def _raise(self, raised: Raised) -> None:
        step = self._waiting.pop(raised.number)
        self._place.hand_out(step)
        if raised.wrapped is not None:
            try:
                raised.wrapped.reraise()
            except BaseException as error:
                if better := beyond_the_dataset(error, step.keys, self._loader):
                    raise better from error
                if isinstance(raised.wrapped, RaisedHere):
                    raise
                # How it came here is nobody's concern.
                raise error from None
        assert self._pool is not None
        raise self._pool.lost(step.keys[raised.sample], raised.tries) from None

    def _end(self) -> None:
        self._place.is_over = True
        if self._pool is not None and self._pool is not self._loader._pool:
            self._pool.close()
        self._pool = None
