"""A pool whose workers are threads of its own process.

The board, the arena and the owner are those of a pool of processes. What differs is what a thread
can't do: it has no memory of its own, and nobody can end it. One that doesn't come back from a
sample keeps that batch's memory until it does; another thread takes its place.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
import traceback
import weakref
from typing import Any

import numpy as np
import torch

from feedline import _thread_draws, _thread_worker
from feedline._core import PoolOwner
from feedline._errors import WorkerError
from feedline._pool import Pool, Raised
from feedline._pool_worker import Job
from feedline._thread_worker import Crew

_log = logging.getLogger("feedline")

# A thread that is in the middle of a sample when its pool is closed has this long to finish it.
_CLOSING_SECS = 5.0
_MOST_FRAMES = 25
# The frames of a worker below the dataset's.
_OURS = (_thread_worker.__file__, _thread_draws.__file__, threading.__file__)


class ThreadPool(Pool):
    """Threads that fill batches."""

    _kind = "thread"

    def _reserve(self, job: Job) -> int:
        # As many threads may hang as were asked for.
        return job.num_workers if self._timeout > 0 else 0

    def _begin(self, context: Any) -> None:
        _thread_worker.teach_torch()
        self._crew = Crew(self._job)
        self._threads: dict[int, threading.Thread] = {}
        # Threads that don't come back from a sample, and where they were.
        self._stuck: dict[int, str] = {}
        # The batches of those samples, with the place of each in its batch.
        self._late: dict[int, tuple[int, int]] = {}
        self._in_flight: list[int] = []
        self._close = weakref.finalize(self, _close, self._owner, self._threads, self._pid)

    def _numbers(self, workers: int) -> set[int]:
        most = self._job.num_workers + self._spares + self._reserve(self._job)
        return set([number for number in range(most) if number not in self._stuck][:workers])

    def _start(self, worker: int) -> None:
        is_ready = threading.Event()
        thread = threading.Thread(
            target=_thread_worker.run,
            args=(self._crew, self._owner.thread(worker), worker, is_ready),
            name=f"feedline worker {worker}",
            # Python would wait for one that hangs, and never end. `_close` waits for the others.
            daemon=True,
        )
        if self._job.worker_init_fn is None:
            self._begin_thread(worker, thread)
            return
        # What the user's function draws or seeds is not the training loop's business. That is here,
        # and draws nothing meanwhile.
        with self._crew.draws.turns.quiet():
            states = random.getstate(), np.random.get_state(), torch.get_rng_state()
            try:
                self._begin_thread(worker, thread)
                while worker in self._threads and not is_ready.wait(0.1):
                    pass
            finally:
                random.setstate(states[0])
                np.random.set_state(states[1])
                torch.set_rng_state(states[2])

    def _begin_thread(self, worker: int, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError as error:  # A limit on threads, or on memory.
            self._do_without(worker, str(error))
            return
        self._threads[worker] = thread

    def offer(self, keys: list[Any], epoch: int) -> int | None:
        """Deal a batch out; its number is returned."""
        number = super().offer(keys, epoch)
        if number is not None:
            self._in_flight.append(number)
        return number

    def take(self, *, is_held_up: bool = False) -> tuple[int, Any] | None:
        """Return the next batch that is done, with its number.

        Raises what the dataset raised, in the order of the batches.
        """
        try:
            with self._crew.draws.turns:
                taken = super().take(is_held_up=is_held_up)
        except Raised as raised:
            self._in_flight.remove(raised.number)
            raise
        if taken is not None:
            self._in_flight.remove(taken[0])
        return taken

    def serve(self, epoch: object) -> None:
        """Make batches for this epoch. Nobody wants what is in flight for another."""
        super().serve(epoch)
        self._in_flight.clear()
        self._late.clear()
        self._crew.forget()

    def _unpacked(self, number: int, batch: Any) -> Any:
        return self._crew.collect(batch.head)

    def _wrapped(self, message: bytes) -> Any:
        return self._crew.collect(message)

    def _look_for_the_dead(self) -> None:
        for worker, thread in list(self._threads.items()):
            if not thread.is_alive():
                del self._threads[worker]
                self._stuck.pop(worker, None)
                self._alive.discard(worker)
                self._retired.discard(worker)
                self._owner.worker_died(worker)

    def _look_for_the_late(self) -> None:
        for worker, batch, place in self._owner.late(self._timeout):
            if worker in self._stuck:
                continue
            self._stuck[worker] = stack = _stack_of(self._threads[worker])
            self._late[batch] = place, worker
            self._were_late += 1
            _log.warning(
                "thread %d has been at place %d of batch %d for longer than timeout=%g s: it "
                "cannot be ended, and another one takes its place\n%s",
                *(worker, place, batch, self._timeout, stack),
            )

    def _nothing_came(self) -> None:
        looked_at = self._in_flight[:1] if self._in_order else self._in_flight
        for number in looked_at:
            if number in self._late and self._owner.give_up(number):
                place, worker = self._late.pop(number)
                self._last_stack = self._stuck.get(worker, "")
                raise Raised(number, None, place, 1)
        if self._in_flight and not self._alive - self._stuck.keys():
            raise WorkerError(
                f"all {len(self._stuck)} threads of this loader are at samples that do not end\n"
                '  workers="processes" can end them'
            )

    def lost(self, sample: Any, tries: int) -> WorkerError:
        """Return the error for a sample whose thread was too slow."""
        dataset = type(self._job.dataset).__name__
        where = "\n".join(f"    {line}" for line in self._last_stack.splitlines())
        return WorkerError(
            f"sample {sample!r} of {dataset} took longer than timeout={self._timeout:g} s\n"
            f"  where it was:\n{where}\n"
            '  its thread cannot be ended; workers="processes" ends a worker and tries again'
        )


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    frames = [] if frame is None else traceback.extract_stack(frame)
    theirs = [one for one in frames if one.filename not in _OURS]
    return "".join(traceback.format_list(theirs[-_MOST_FRAMES:])).rstrip()


def _close(owner: PoolOwner, threads: dict[int, threading.Thread], pid: int) -> None:
    if pid != os.getpid():
        return
    owner.close()
    deadline = time.monotonic() + _CLOSING_SECS
    for thread in list(threads.values()):
        # A pool that nobody has any more may be closed by a thread of its own.
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
