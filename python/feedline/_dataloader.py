"""``feedline.DataLoader``: torch's, with a pool that fills batches where they are read.

An epoch is a plan: which sample stands at each place is a function of the seed and the epoch. Its
place is the number of samples that were handed out, so a state holds at any batch size and number
of workers.
"""

from __future__ import annotations

import inspect
import multiprocessing
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.context import BaseContext
from typing import Any, Literal, Self

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, default_collate
from typing_extensions import TypeVar  # torch needs it, too

from feedline import _auto_size
from feedline._auto_size import AutoWorkers, PoolState, number_of
from feedline._core import Plan, PoolReport, PoolSize, count_steps, draw
from feedline._errors import FeedValueError, explained, option
from feedline._in_process import InProcess
from feedline._loader import seed_of_order
from feedline._loader_arguments import (
    LATER,
    SEEDS,
    check_order,
    check_workers,
    checked_seed,
    is_iterable,
    refuse_later,
)
from feedline._loader_epoch import Epoch
from feedline._numbered import Numbered
from feedline._numbering import numbered
from feedline._place import Place, checked_ahead, checked_epoch, generator_state, span_of_step
from feedline._pool import Pool
from feedline._pool_worker import Job
from feedline._shard import Shard, resolve_shard
from feedline._shuffled_sampler import ShuffledSampler
from feedline._thread_pool import ThreadPool
from feedline.orders import Order

_T_co = TypeVar("_T_co", covariant=True, default=Any)

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
        num_workers: int | Literal["auto"] = 0,
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
        workers: Literal["processes", "threads"] = "processes",
        name: str | None = None,
        seed: int | None = None,
        with_ids: bool = False,
        shard: Shard | None = None,
        **later: Any,
    ) -> None:
        """Take torch's arguments, and ours."""
        if name is not None:
            return  # FEEDLINE_MODE=off: `__new__` has made it already
        refuse_later(later)
        check_workers(workers, num_workers, dataset, multiprocessing_context)
        number: Any = number_of(num_workers, dataset)
        if shuffle and sampler is batch_sampler is None and not is_iterable(dataset):
            shuffle, sampler = None, ShuffledSampler(self, dataset, generator)
        super().__init__(
            *(dataset, batch_size, shuffle, sampler, batch_sampler, number, collate_fn),
            *(pin_memory, drop_last, timeout, worker_init_fn, multiprocessing_context, generator),
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if is_iterable(dataset) and (with_ids or seed is not None):
            raise FeedValueError(
                explained(
                    *("with_ids=" if with_ids else option("seed"), " is for datasets whose "),
                    f"samples have numbers, and {type(dataset).__name__} is an IterableDataset",
                    hint="leave it out",
                )
            )
        self._has_threads = workers == "threads"
        self._seed = None if seed is None else checked_seed(seed)
        self._with_ids = with_ids
        # Whether it is a server's: then each batch has its numbers, for the jobs that ask.
        self._is_served = False
        # What torch made of the other arguments; a subclass may put its own samplers there.
        is_ours = isinstance(sampler, ShuffledSampler) and sampler.loader is self
        is_made = is_ours or (sampler is None and batch_sampler is None)
        self._made_sampler = self.sampler if is_made else None
        self._made_batch_sampler = self.batch_sampler if batch_sampler is None else None
        self._shuffles = is_ours
        if self._made_batch_sampler is not None and hasattr(self.sampler, "set_epoch"):
            # A framework that builds a loader around it tells it of epochs, if it can.
            vars(self._made_batch_sampler)["set_epoch"] = self.sampler.set_epoch
        check_order(self.sampler, dataset)
        if isinstance(self.sampler, Order) and seed is not None:
            self.sampler.seed_by_default(seed)
        self.shard = self._checked_shard(shard)
        self._epoch = 0
        self._resume: dict[str, Any] | None = None
        self._place: Place | None = None
        self._pool: Pool | None = None
        # How many workers there should be, if the pool finds that out; kept from epoch to epoch.
        self._size: PoolSize | None = None
        self._report: PoolReport | None = None

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
        is_ours = isinstance(self.sampler, Order)
        return self._batches_itself and (is_ours or self.sampler is self._made_sampler)

    @property
    def _order(self) -> Order | None:
        """An order of ``feedline.orders``, if it was given one."""
        return self.sampler if self._orders_itself and isinstance(self.sampler, Order) else None

    def _checked_shard(self, shard: Shard | None) -> tuple[int, int] | None:
        found = resolve_shard(shard, several_machines=True)
        if found is None:
            return None
        why: tuple[Any, ...] = ()
        if is_iterable(self.dataset) or not self._orders_itself:
            why = ("an order that all ranks can look up: shuffle=, or one of feedline.orders",)
        elif self._seed is None:
            why = (option("seed"), ", the same on all ranks: they shuffle alike")
        elif not self.in_order:
            why = ("in_order=True: ranks take their steps together",)
        if why:
            raise FeedValueError(explained(f"shard={shard!r} needs ", *why))
        return found[0], found[1]

    def __len__(self) -> int:
        """How many batches an epoch has."""
        if self.shard is None:
            return super().__len__()
        size = 1 if self.batch_size is None else self.batch_size
        return count_steps(len(self._plan()), size, self.shard[1], self.drop_last)

    def __iter__(self) -> Any:
        """One epoch; nothing happens before its first batch is asked for."""
        if is_iterable(self.dataset):
            return super().__iter__()
        self._check_options()
        return Epoch(self)

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
                "  shuffle=True and feedline.orders have orders that can be looked up"
            )
        if self._order is not None:
            return self._order.plan
        samples = len(self.dataset)  # type: ignore[arg-type]
        return Plan.shuffled(samples) if self._shuffles else Plan.sequential(samples)

    def order_identity(self) -> str:
        """What an epoch's order depends on, besides the seed and its number; empty if unknown."""
        if isinstance(self.dataset, IterableDataset):
            return ""
        if self._orders_itself:
            return str(self._order or self._plan())
        return f"{type(self.sampler if self._batches_itself else self.batch_sampler).__name__}"

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``iter()`` be this epoch."""
        self._epoch = checked_epoch(epoch)
        parts: list[Any] = [] if self._order else [self.sampler, self.batch_sampler]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def samples(self, epoch: int, step: int) -> list[int]:
        """Return the numbers of the samples of a step, past or to come."""
        plan = self._plan()
        size, drop_last = self.batch_size or 1, self.drop_last
        first, count = span_of_step(len(plan), step, size, self.shard, drop_last=drop_last)
        return plan.numbers(self.seed, checked_epoch(epoch), first, count)

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
        if is_iterable(self.dataset):
            # Its samples have no numbers: what it says of itself is all that there is.
            dataset: Any = self.dataset
            return {"dataset": dataset.state_dict()} if hasattr(dataset, "state_dict") else {}
        place = self._place
        epoch, sample, rng, ahead = self._epoch, 0, None, []
        if place is not None and not place.is_over:
            epoch, sample, rng, ahead = place.epoch, place.given, place.sampler_rng, place.ahead
        order = self.order_identity()
        state = {"seed": self.seed, "epoch": epoch, "sample": sample, "order": order}
        # The keys are always the same: some checkpoints are read by the keys of a fresh loader.
        state |= {"ahead": [list(span) for span in ahead]}
        state |= self._order.state_dict() if self._order else {}
        return state if self._orders_itself else {**state, "sampler_rng": rng}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next ``iter()`` go on where ``state_dict()`` was called."""
        if is_iterable(self.dataset):
            if "dataset" in state:
                dataset: Any = self.dataset
                dataset.load_state_dict(state["dataset"])
            return
        if "feed" in state:
            state = self._of_feed(state)
        try:
            loaded = {**state, "epoch": int(state["epoch"]), "sample": int(state["sample"])}
            ahead = checked_ahead(state.get("ahead", []), loaded["sample"])
            loaded |= {"ahead": [list(span) for span in ahead]}
            generator_state(state.get("sampler_rng"))
            order, seed = str(state["order"]), int(state["seed"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise FeedValueError(f"{state!r} is not the state_dict() of a DataLoader") from None
        if loaded["epoch"] < 0 or loaded["sample"] < 0:
            raise FeedValueError(f"{state!r} is not a place in an epoch")
        mine = self._order
        there = mine and mine.restored(state, loaded["epoch"] * len(mine) + loaded["sample"])
        if not (there and there is not mine) and order != self.order_identity():
            raise FeedValueError(
                f"the state is of another order than this loader's\n"
                f"  the state's: {order}\n  this loader's: {self.order_identity()}"
            )
        samples = len(self._plan()) if self._orders_itself else None
        last = ahead[-1][1] if ahead else loaded["sample"]
        if samples is not None and last > samples:
            raise FeedValueError(f"{state!r} is no place in an epoch of {samples} samples")
        self._seed, self._resume, self._place = checked_seed(seed), loaded, None
        if mine and there:
            mine.take_over(there)

    def _of_feed(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state of a loader with a name as one of this loader."""
        order = str(state.get("order"))
        seed = seed_of_order(order)
        if seed is None or not self._orders_itself:
            raise FeedValueError(
                f"the state is of feed {state['feed']!r}, whose samples can't be looked up here\n"
                f"  its order: {order}"
            )
        place = {"epoch": state.get("epoch"), "sample": state.get("sample")}
        return {"seed": seed, "order": order.partition(": ")[2], **place}

    def _serve(self) -> Self:
        """Make it a server's loader."""
        self._is_served = True
        return self

    def _numbered(self, batch: Any, keys: list[Any]) -> Numbered:
        is_collated, is_by_torch = self._auto_collation, self.collate_fn is default_collate
        return numbered(batch, keys, is_collated=is_collated, is_by_torch=is_by_torch)

    @property
    def _seek(self) -> Callable[[int, int, bool], None] | None:
        """What has the next ``iter()`` begin anywhere in an epoch; None if only a state does."""
        if isinstance(self.dataset, IterableDataset) or not (self._orders_itself and self.in_order):
            return None

        def seek(epoch: int, place: int, counts_batches: bool) -> None:
            samples = place * (self.batch_size or 1) if counts_batches else place
            self._place = None
            self._resume = {"epoch": epoch, "sample": min(samples, len(self._plan()))}

        return seek

    def _start_pool(self, epoch: int) -> Pool:
        pool = self._pool
        if pool is not None and pool.is_here:
            return pool
        if self._size is None and isinstance(self.num_workers, AutoWorkers):
            self._size = _auto_size.new()
        most = self.num_workers if self._size is None else self._size.most
        job = Job(
            *(self.dataset, self.collate_fn, self.worker_init_fn, self._auto_collation),
            # What workers are seeded with is another in each epoch, as torch's is.
            *(most, self.seed, draw(self.seed, epoch, _OF_WORKERS) % SEEDS),
        )
        prefetch, in_order = self.prefetch_factor or 2, bool(self.in_order)
        make, context = (ThreadPool, None) if self._has_threads else (Pool, self._context())
        pool = make(
            *(context, job, prefetch, self.timeout),
            in_order=in_order,
            size=self._size,
            report=self._pool_report(),
        )
        self._pool = pool if self.persistent_workers else None
        return pool

    def _context(self) -> BaseContext:
        context = self.multiprocessing_context
        if context is None:
            return multiprocessing.get_context()
        return context if isinstance(context, BaseContext) else multiprocessing.get_context(context)

    @property
    def pool_size(self) -> PoolState:
        """How many workers there are, how many there may be, and why."""
        if not isinstance(self.num_workers, AutoWorkers):
            return PoolState(self.num_workers, self.num_workers, f"num_workers={self.num_workers}")
        size = self._size or _auto_size.new()
        return PoolState(size.workers, size.most, size.why)

    def _pool_report(self) -> PoolReport | None:
        """Where its pools leave their numbers, for a server; None without workers."""
        if self.num_workers == 0 or isinstance(self.dataset, IterableDataset):
            return None
        if self._report is None:
            self._report = PoolReport()
        return self._report

    def close(self) -> None:
        """End the workers that ``persistent_workers`` keeps."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_size": None, "_report": None}


def _named(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Tell a loader's arguments from those of its server and of this job's consumer."""
    from feedline._named import named

    parameters = inspect.signature(DataLoader.__init__).parameters
    own = [key for key in parameters if key not in ("self", "name", "later", "shard")]
    later = {key: value for key, value in keywords.items() if key in LATER}
    refuse_later(later)
    mine = {key: value for key, value in keywords.items() if key in own}
    arguments = (
        {key: parameters[key].default for key in own} | dict(zip(own, args, strict=False)) | mine
    )
    if arguments["dataset"] is not None:
        # What is wrong with them is said here, as torch says it.
        DataLoader(**arguments)
    both = {key: value for key, value in keywords.items() if key not in own and key not in later}
    return named(name, arguments, both)
