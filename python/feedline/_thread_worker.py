"""A worker of a pool that is a thread of its owner's process: takes tasks, makes their samples.

The loop is Python's, and calls the extension for each step: no Rust frame lies below the dataset,
so that a thread may be ended anywhere in it when the interpreter ends.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

from torch.utils.data import _utils, default_collate

from feedline import _sample
from feedline._core import PoolThread, draw
from feedline._pool_worker import Hooks, Job
from feedline._thread_draws import Closed, Generators, SharedDraws, ThreadDraws

# Keeps the draws of a batch apart from those of its samples, as in ``pool/maker.rs``.
_COLLATING = (1 << 64) - 1


class _Here(threading.local):
    """Who this thread is, for ``get_worker_info``."""

    info: Any = None


_here = _feedline_here = _Here()
_worker_info = None


def _get_worker_info() -> Any:
    """Stand in for torch's: it finds these two names among the globals of torch's own module."""
    return _feedline_here.info or _worker_info


def teach_torch() -> None:
    """Have torch's ``get_worker_info`` know of threads.

    It is imported by name into many scripts, so the function stays, and its code is exchanged.
    """
    torchs: Any = _utils.worker
    if not hasattr(torchs, "_feedline_here"):
        torchs._feedline_here = _here
        torchs.get_worker_info.__code__ = _get_worker_info.__code__


@contextlib.contextmanager
def _nobody() -> Iterator[None]:
    """Hide that this is a worker: there, torch collates into files in shared memory."""
    info, _here.info = _here.info, None
    try:
        yield
    finally:
        _here.info = info


class Crew:
    """What the threads of a pool and its owner have in common."""

    def __init__(self, job: Job) -> None:
        """Prepare for a job."""
        self.job = job
        self.draws = SharedDraws()
        self._handed_over: dict[int, Any] = {}
        self._tickets = itertools.count()

    def hand_over(self, thing: Any) -> bytes:
        """Keep an object for the pool's owner; it is found by the ticket that is returned."""
        ticket = next(self._tickets)
        self._handed_over[ticket] = thing
        return ticket.to_bytes(8, "little")

    def collect(self, ticket: bytes) -> Any:
        """Return what was handed over."""
        return self._handed_over.pop(int.from_bytes(ticket, "little"))

    def forget(self) -> None:
        """Nobody will ask for what was handed over until now."""
        self._handed_over.clear()


class Raised:
    """What the dataset raised: in one process it can be raised again as it is."""

    def __init__(self, error: BaseException) -> None:
        """Keep it."""
        self._error: BaseException | None = error

    def reraise(self) -> None:
        """Raise it, once, with what it came from."""
        error, self._error = self._error, None
        assert error is not None
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            # Its traceback has this frame: without the name it is no cycle.
            del error


class Worker:
    """One thread's work."""

    def __init__(self, crew: Crew, end: PoolThread, number: int) -> None:
        """Prepare, in the thread itself."""
        self._crew, self._job, self._end = crew, crew.job, end
        job = crew.job
        self._id = number % job.num_workers
        self._draws = ThreadDraws(crew.draws)
        self._hooks = Hooks(job, "")
        self._broken: BaseException | None = None
        self._is_broken = False
        _here.info = _info(job, self._id, self._draws)
        self._dataset = job.dataset

    def initialise(self) -> None:
        """Call the user's own function; what it raises is raised where the first batch is taken."""
        if self._job.worker_init_fn is None:
            return
        try:
            with self._draws:
                self._job.worker_init_fn(self._id)
        except Exception as error:
            self._broken, self._is_broken = error, True
        # It may have put another dataset there.
        self._dataset = _here.info.dataset

    def run(self) -> None:
        """Work until the pool is closed."""
        end = self._end
        while (task := end.next()) is not None:
            try:
                self._do(*task)
            except Closed:
                return
            except BaseException as error:
                end.raised(self._crew.hand_over(Raised(error)))
            del task

    def _do(self, is_whole: bool, given: Any, first: int, samples: int, epoch: int) -> None:
        if self._is_broken:
            error, self._broken = self._broken, None
            try:
                raise error or RuntimeError("worker_init_fn raised")
            finally:
                # Its traceback has this frame: without the name it is no cycle.
                del error
        if isinstance(given, bytes):
            keys, numbers = self._hooks.keys(given, first, samples)
        else:
            keys, numbers = given, given
        seeds = [draw(self._job.seed, epoch, number) for number in numbers]
        if is_whole:
            batch = self._sure(lambda: self._whole(keys, seeds, epoch))
            if not self._end.hand_over(self._crew.hand_over(batch)):
                raise Closed
        elif self._find_lanes(keys, seeds) and self._sure(lambda: self._fill(keys, seeds)):
            self._end.made()
        else:
            self._end.unfit()

    def _sure(self, make: Callable[[], Any]) -> Any:
        name = type(self._job.dataset).__name__
        return self._crew.draws.make(make, name, self._is_closed_meanwhile)

    def _is_closed_meanwhile(self) -> bool:
        # Time in which the training loop was waited for is not the sample's.
        self._end.begin(0)
        return self._end.is_closed()

    def _get(self, key: Any, seed: int) -> Any:
        self._draws.begin(seed)
        with self._draws:
            return self._dataset[key]

    def _get_many(self, keys: list[Any], seed: int) -> Any:
        self._draws.begin(seed)
        with self._draws:
            return self._dataset.__getitems__(keys)

    def _samples(self, keys: list[Any], seeds: list[int]) -> Iterator[tuple[int, Any]]:
        """Yield all samples, each with its number: one at a time, if they draw."""
        draws = self._crew.draws
        if self._hooks.takes_many and not draws.are_seen:
            self._end.begin(0)
            samples = self._get_many(keys, seeds[0])
            if not draws.are_seen:
                yield from enumerate(samples)
                return
        number = 0
        for at, (key, seed) in enumerate(zip(keys, seeds, strict=True)):
            self._end.begin(at)
            if not self._hooks.takes_many:
                yield at, self._get(key, seed)
                continue
            for sample in self._get_many([key], seed):
                yield number, sample
                number += 1

    def _find_lanes(self, keys: list[Any], seeds: list[int]) -> bool:
        """Learn where samples stand, of the first one if nobody knows yet. False: nowhere."""
        end = self._end
        if (lanes := end.lanes()) is None:
            first = self._sure(lambda: next(self._samples(keys[:1], seeds[:1]), None))
            if first is None:
                return False
            with _nobody():
                description = _sample.dumps(_sample.describe(first[1]))
            if not end.ask_for_lanes(description):
                raise Closed
            lanes = end.lanes()
        if isinstance(lanes, bytes):
            end.learn(_sample.loads(lanes))
            return True
        return bool(lanes)

    def _fill(self, keys: list[Any], seeds: list[int]) -> bool:
        """Copy each sample to its place. False if one has none."""
        put, number = self._end.put, -1
        for number, sample in self._samples(keys, seeds):
            if number >= len(keys) or not put(number, sample):
                return False
        return number + 1 == len(keys)

    def _whole(self, keys: list[Any], seeds: list[int], epoch: int) -> Any:
        """Make a batch, as the user's own function collates it."""
        draws, job = self._crew.draws, self._job
        samples: Any = None
        if self._hooks.takes_many and not draws.are_seen:
            self._end.begin(0)
            samples = self._get_many(keys, seeds[0] if seeds else 0)
        if samples is None or (draws.are_seen and seeds):
            samples = [sample for _, sample in self._samples(keys, seeds)]
        if seeds:
            self._draws.begin(draw(seeds[0], epoch, _COLLATING))
        if job.collate_fn is default_collate:
            with _nobody(), self._draws:
                return default_collate(samples)
        with self._draws:
            return job.collate_fn(samples if job.auto_collation else samples[0])


def _info(job: Job, worker_id: int, draws: ThreadDraws) -> Any:
    make: Any = _utils.worker.WorkerInfo
    common = {
        "id": worker_id,
        "num_workers": job.num_workers,
        "seed": job.base_seed + worker_id,
        "dataset": job.dataset,
    }
    try:
        return make(**common, rng=cast(Any, Generators(draws)), worker_method="thread")
    except TypeError:  # an older torch
        return make(**common)


def run(crew: Crew, end: PoolThread, number: int, is_ready: threading.Event) -> None:
    """Be a worker: what each thread runs."""
    try:
        worker = Worker(crew, end, number)
        worker.initialise()
    finally:
        is_ready.set()
    worker.run()
