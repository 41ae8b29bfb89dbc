"""A worker process of a pool: what it does before and around the samples that it makes."""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import hashlib
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils, default_collate

from feedline import _sample, _whole_batch
from feedline._core import PoolRings, PoolWorker
from feedline._folder_index import Indexes

# Of those that the system doesn't use; asks a worker for its stack.
STACK_SIGNAL = signal.SIGRTMIN + 5
# glibc's names, and the most that its own rule arrives at.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_HEAP_BLOCK_BYTES = 32 << 20
# A mailbox has room for it, pickled.
_MOST_MESSAGE_CHARS = 200_000


@dataclasses.dataclass
class Job:
    """What every worker of a pool has to know."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    auto_collation: bool
    num_workers: int
    seed: int
    base_seed: int
    indexes: Indexes | None = None
    """Packed in the training job, for a forker that is forked from it."""


class Hooks:
    """What the worker's loop asks Python for."""

    def __init__(self, job: Job, where: str) -> None:
        """Prepare for one dataset; ``where`` is how errors name this process."""
        self._job = job
        self._where = where
        self._broken: ExceptionWrapper | None = None
        self.takes_many = job.auto_collation and bool(getattr(job.dataset, "__getitems__", None))

    def initialise(self, worker_id: int) -> None:
        """Call the user's own function; what it raises is raised where the first batch is taken."""
        if self._job.worker_init_fn is None:
            return
        try:
            self._job.worker_init_fn(worker_id)
        except Exception:
            self._broken = ExceptionWrapper(where=self._where)

    def keys(self, pickled: bytes, first: int, count: int) -> tuple[list[Any], list[int]]:
        """Return a task's part of a batch's keys, and the numbers that their draws depend on."""
        keys = pickle.loads(pickled)[first : first + count]
        if not keys and self._job.collate_fn is default_collate:
            # There is nothing to make lanes of. This raises.
            default_collate([])
        return keys, [key_number(key) for key in keys]

    def describe(self, sample: Any) -> bytes:
        """Describe the dataset's first sample."""
        return _sample.dumps(_sample.describe(sample))

    def layout(self, description: bytes) -> Any:
        """Return what ``describe`` found out, in this worker or in another."""
        return _sample.loads(description)

    def pack(self, samples: list[Any]) -> tuple[bytes, list[Any]]:
        """Collate a batch that travels whole."""
        collate = self._job.collate_fn
        if collate is not default_collate:
            return _whole_batch.pack(collate(samples if self._job.auto_collation else samples[0]))
        # Where it knows of a worker, it makes a file in shared memory for each tensor.
        info, _utils.worker._worker_info = _utils.worker._worker_info, None
        try:
            return _whole_batch.pack(default_collate(samples))
        finally:
            _utils.worker._worker_info = info

    def caught(self, error: BaseException, trace: TracebackType | None) -> bytes:
        """Pickle what the dataset raised, for ``reraise`` in the training job."""
        exc_info = (type(error), error, trace)
        wrapped = ExceptionWrapper(exc_info=exc_info, where=self._where)
        if self._broken is not None:
            wrapped, self._broken = self._broken, None
        # The end of a long message says more than its beginning.
        wrapped.exc_msg = wrapped.exc_msg[-_MOST_MESSAGE_CHARS:]
        try:
            message = pickle.dumps(wrapped)
            pickle.loads(message)
        except Exception:
            wrapped.exc_type = RuntimeError
            message = pickle.dumps(wrapped)
        return message

    @property
    def is_broken(self) -> bool:
        """Whether the user's ``worker_init_fn`` raised."""
        return self._broken is not None


class _Broken:
    """In place of a dataset whose worker could not be initialised."""

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("worker_init_fn raised")


def key_number(key: Any) -> int:
    """Return a number for a sampler's key: the same in every process."""
    if type(key) is int and 0 <= key < 1 << 64:
        return key
    return int.from_bytes(hashlib.blake2b(pickle.dumps(key), digest_size=8).digest(), "little")


def _keep_freed_memory() -> None:
    """Have malloc keep what a sample frees: the next one needs as much again.

    By default it goes back to the system, and each sample's pages come anew, filled with zeros.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ):
        return  # Somebody has chosen.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MOST_HEAP_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MOST_HEAP_BLOCK_BYTES)


def run(
    job: Job,
    descriptors: tuple[int, int, int, int, int],
    worker: int,
    stack: int,
    rings: PoolRings | None,
) -> None:
    """Work until the pool is closed. Called in a process that was forked for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(stack)
    faulthandler.register(STACK_SIGNAL, stack, all_threads=True)
    threading.current_thread().name = f"feedline worker {worker}"

    _keep_freed_memory()
    torch.set_num_threads(1)
    worker_id = worker % job.num_workers
    seed = job.base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_utils.worker._generate_state(job.base_seed, worker_id))
    _utils.worker._worker_info = _utils.worker.WorkerInfo(
        id=worker_id, num_workers=job.num_workers, seed=seed, dataset=job.dataset
    )
    hooks = Hooks(job, f"in DataLoader worker process {worker_id}")
    hooks.initialise(worker_id)
    board, workers, slots, arena, arena_bytes = descriptors
    end = PoolWorker(os.dup(board), workers, slots, os.dup(arena), arena_bytes, worker, rings)
    # A function of the user's may have put another dataset there.
    dataset = _utils.worker._worker_info.dataset
    end.run(_Broken() if hooks.is_broken else dataset, hooks, job.seed)
