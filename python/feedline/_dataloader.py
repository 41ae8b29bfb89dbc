"""``feedline.DataLoader``: torch's, with a pool that fills batches where they are read.

An epoch is a plan: which sample stands at each place is a function of the seed and the epoch. Its
place is the number of samples that were handed out, so a state holds at any batch size and number
of workers.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import multiprocessing
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, _utils
from typing_extensions import TypeVar  # torch needs it, too

from feedline._core import Plan, draw
from feedline._errors import FeedValueError
from feedline._in_process import InProcess
from feedline._pool import Pool, Raised
from feedline._pool_worker import Job

_T_co = TypeVar("_T_co", covariant=True, default=Any)

_SEEDS = 1 << 63
# Keeps the seeds of workers apart from those of samples.
_OF_WORKERS = (1 << 64) - 1


class DataLoader(TorchDataLoader[_T_co]):
    """torch's DataLoader, with the same arguments.

    Its workers fill batches where they are read: no sample is pickled or copied twice. An epoch's
    order and its samples' draws depend on ``seed`` and the epoch alone, whatever the number of
    workers; without a seed, one is drawn from torch's generator.

    With ``name``, all jobs that give it share one loader, in a process of its own: see ``share``,
    whose keywords can be given too. With a name and no dataset, it attaches to the feed that runs.
    """

    def __new__(cls, *args: Any, name: str | None = None, **keywords: Any) -> Any:
        """Make a loader of this process, or with a name one that is shared."""
        if name is None:
            return super().__new__(cls)
        return _named(name, args, keywords)

    def __init__(
        self,
        dataset: Any = None,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        name: None = None,
        seed: int | None = None,
        with_ids: bool = False,
        **later: Any,
    ) -> None:
        _refuse_later(later)
        super().__init__(
            *(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn),
            *(pin_memory, drop_last, timeout, worker_init_fn, multiprocessing_context, generator),
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._seed = None if seed is None else _checked_seed(seed)
        self._with_ids = with_ids
        # What torch made of the other arguments; a subclass may put its own samplers there.
        self._made_sampler = self.sampler if sampler is None and batch_sampler is None else None
        self._made_batch_sampler = self.batch_sampler if batch_sampler is None else None
        self._shuffles = bool(shuffle)
        self._epoch = 0
        self._resume: dict[str, Any] | None = None
        self._place: _Place | None = None
        self._pool: Pool | None = None

    @property
    def seed(self) -> int:
        """What the order and the draws of all epochs depend on."""
        if self._seed is None:
            drawn = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            self._seed = int(drawn.item())
        return self._seed

    def seed_by_default(self, seed: int) -> None:
        """Use this seed, if none was given or drawn."""
        if self._seed is None:
            self._seed = seed

    @property
    def _batches_itself(self) -> bool:
        return self.batch_sampler is self._made_batch_sampler

    @property
    def _orders_itself(self) -> bool:
        return self._batches_itself and self.sampler is self._made_sampler

    def __iter__(self) -> Any:
        """One epoch; nothing happens before its first batch is asked for."""
        if isinstance(self.dataset, IterableDataset):
            return super().__iter__()
        self._check_options()
        return _Epoch(self)

    def _check_options(self) -> None:
        """Say what torch says when an epoch begins: it asserts what does not go together."""
        if self.timeout > 0 and self.num_workers == 0:
            raise AssertionError(f"timeout={self.timeout:g} needs num_workers > 0")
        if self.prefetch_factor == 0:
            raise AssertionError("prefetch_factor=0 is less than the one batch that is waited for")
        if self.pin_memory and self.pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device, ignore pin_memory_device={self.pin_memory_device!r}.",
                stacklevel=3,
            )
        if self.pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )

    def _plan(self) -> Plan:
        if not self._orders_itself:
            raise TypeError(
                "a loader with a sampler knows an epoch's samples only while it reads them\n"
                "  leave the sampler out: shuffle=True has an order that can be looked up"
            )
        samples = len(self.dataset)  # type: ignore[arg-type]
        return Plan.shuffled(samples) if self._shuffles else Plan.sequential(samples)

    def order_identity(self) -> str:
        """What an epoch's order depends on, besides the seed and its number."""
        if self._orders_itself:
            return str(self._plan())
        return f"{type(self.sampler if self._batches_itself else self.batch_sampler).__name__}"

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``iter()`` be this epoch."""
        self._epoch = int(epoch)
        parts: list[Any] = [self.sampler, self.batch_sampler]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def samples(self, epoch: int, step: int) -> list[int]:
        """Return the numbers of the samples of a step, past or to come."""
        plan = self._plan()
        first, count = self._span(len(plan), step)
        return plan.numbers(self.seed, epoch, first, count)

    def _span(self, samples: int, step: int) -> tuple[int, int]:
        size = 1 if self.batch_size is None else self.batch_size
        steps = samples // size if self.drop_last else -(-samples // size)
        if not 0 <= step < steps:
            raise IndexError(f"step {step} of an epoch with {steps} steps")
        return step * size, min(size, samples - step * size)

    def remake(self, epoch: int, step: int) -> Any:
        """Make a step's batch again, in this process: bit for bit what it was, or will be."""
        numbers = self.samples(epoch, step)
        batch = self._in_process().batch(numbers, epoch)
        return (batch, torch.tensor(numbers)) if self._with_ids else batch

    def _in_process(self) -> InProcess:
        return InProcess(self.dataset, self.collate_fn, self._auto_collation, self.seed)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: enough to go on at any batch size, with any number of workers."""
        if self._resume is not None:
            return dict(self._resume)
        place = self._place
        epoch, sample, rng = self._epoch, 0, None
        if place is not None and not place.is_over:
            epoch, sample, rng = place.epoch, place.given, place.sampler_rng
        order = self.order_identity()
        state = {"seed": self.seed, "epoch": epoch, "sample": sample, "order": order}
        return state if rng is None else {**state, "sampler_rng": rng}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next ``iter()`` go on where ``state_dict()`` was called."""
        try:
            loaded = {**state, "epoch": int(state["epoch"]), "sample": int(state["sample"])}
            order, seed = str(state["order"]), int(state["seed"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise FeedValueError(f"{state!r} is not the state_dict() of a DataLoader") from None
        if loaded["epoch"] < 0 or loaded["sample"] < 0:
            raise FeedValueError(f"{state!r} is not a place in an epoch")
        if order != self.order_identity():
            raise FeedValueError(
                f"the state is of another order than this loader's\n"
                f"  the state's: {order}\n  this loader's: {self.order_identity()}"
            )
        self._seed, self._resume, self._place = seed, loaded, None

    def _start_pool(self, epoch: int) -> Pool:
        pool = self._pool
        if pool is not None and pool.is_here:
            return pool
        job = Job(
            *(self.dataset, self.collate_fn, self.worker_init_fn, self._auto_collation),
            # What workers are seeded with is another in each epoch, as torch's is.
            *(self.num_workers, self.seed, draw(self.seed, epoch, _OF_WORKERS) % _SEEDS),
        )
        in_flight = self.num_workers * (self.prefetch_factor or 2)
        pool = Pool(self._context(), job, in_flight, self.timeout, in_order=bool(self.in_order))
        self._pool = pool if self.persistent_workers else None
        return pool

    def _context(self) -> BaseContext:
        context = self.multiprocessing_context
        if context is None:
            return multiprocessing.get_context()
        return context if isinstance(context, BaseContext) else multiprocessing.get_context(context)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


# What is planned: its default, and nothing else yet.
_LATER = {
    "cache": None,
    "cache_dir": None,
    "native": "auto",
    "order": "common",
    "shard": None,
    "cluster": None,
    "placement": "local",
    "pool": None,
}


def _refuse_later(keywords: dict[str, Any]) -> None:
    for key, value in keywords.items():
        if key not in _LATER:
            raise TypeError(f"DataLoader.__init__() got an unexpected keyword argument {key!r}")
        if value != _LATER[key]:
            raise FeedValueError(f"{key}={value!r} is not possible yet\n  leave it out")


def _named(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Tell a loader's arguments from those of its server and of this job's consumer."""
    from feedline._named import named

    parameters = inspect.signature(DataLoader.__init__).parameters
    own = [key for key in parameters if key not in ("self", "name", "later")]
    later = {key: value for key, value in keywords.items() if key in _LATER and key != "shard"}
    _refuse_later(later)
    mine = {key: value for key, value in keywords.items() if key in own}
    arguments = (
        {key: parameters[key].default for key in own} | dict(zip(own, args, strict=False)) | mine
    )
    if arguments["with_ids"]:
        raise FeedValueError(
            "with_ids=True and name= do not go together yet\n  samples(epoch, step) names them"
        )
    if arguments["dataset"] is not None:
        # What is wrong with them is said here, as torch says it.
        DataLoader(**arguments)
    both = {key: value for key, value in keywords.items() if key not in own and key not in later}
    return named(name, arguments, both)


def _checked_seed(seed: object) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise FeedValueError(f"seed={seed!r} is not a whole number")
    number = int(seed.__index__())
    if not 0 <= number < _SEEDS:
        raise FeedValueError(f"seed={number} is not a number from 0 to {_SEEDS - 1}")
    return number


@dataclasses.dataclass
class _Place:
    """Where an epoch is. The loader keeps it when the iterator is gone."""

    epoch: int
    given: int
    """How many samples were handed out."""
    sampler_rng: Any = None
    """What a sampler's generator was like before the epoch."""
    is_over: bool = False


class _Epoch:
    """One epoch of a loader: its batches, one after the other."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._keys: Iterator[list[Any]] | None = None
        self._pool: Pool | None = None
        self._in_process: InProcess | None = None
        self._waiting: dict[int, list[Any]] = {}
        self._place = _Place(0, 0)

    def __iter__(self) -> _Epoch:
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
        self._place = _Place(epoch, 0 if resume is None else resume["sample"])
        loader.seed  # noqa: B018  drawn now, if it was not given
        if loader._orders_itself:
            drop_last, size = loader.drop_last, loader.batch_size or 1
            keys = _planned(loader._plan(), loader.seed, self._place, size, drop_last=drop_last)
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
        except Exception:
            # It is left out, as it would be with workers.
            self._place.given += len(keys)
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
        left = len(loader.dataset) - self._place.given  # type: ignore[arg-type]
        return left < (loader.batch_size or 1) if loader.drop_last else left <= 0

    def _raise(self, raised: Raised) -> None:
        keys = self._waiting.pop(raised.number)
        self._place.given += len(keys)
        if raised.wrapped is not None:
            try:
                raised.wrapped.reraise()
            except BaseException as error:
                # How it came here is nobody's concern.
                raise error from None
        assert self._pool is not None
        raise self._pool.lost(keys[raised.sample], raised.tries) from None

    def _end(self) -> None:
        self._place.is_over = True
        if self._pool is not None and self._pool is not self._loader._pool:
            self._pool.close()
        self._pool = None


def _planned(
    plan: Plan, seed: int, place: _Place, size: int, *, drop_last: bool
) -> Iterator[list[Any]]:
    samples, first = len(plan), place.given
    while samples - first >= (size if drop_last else 1):
        count = min(size, samples - first)
        yield plan.numbers(seed, place.epoch, first, count)
        first += count


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
