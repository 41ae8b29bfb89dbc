"""A training job's pool of worker processes, and the forker that it gets them from."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import time
import weakref
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils import _pytree as pytree

from feedline import _folder_index, _forker, _sample, _whole_batch
from feedline._core import Filling, PoolOwner, PoolReport, PoolSize, without_batches
from feedline._errors import WorkerError
from feedline._pool_worker import Job

_log = logging.getLogger("feedline")

# Keys below it travel as they are, others in a pickle.
_NUMBERS = 1 << 64
_TRIES = 3
_LOOK_EVERY_SECS = 0.1
# A sample is slow that takes so much longer than others do.
_SLOW_TIMES = 20
_SLOW_SECS = 0.05
# Address space, not memory: pages come with the first write.
_ARENA_BYTES = 1 << 40
_LEAST_ARENA_BYTES = 1 << 32


# A child that is forked, our own forkers too, must not keep the sockets of other forkers open: each
# ends when the training job's end of its socket does.
_controls: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for control in _controls:
        control.close()


os.register_at_fork(after_in_child=_close_in_child)


class Pool:
    """Workers that fill batches.

    ``offer`` deals a batch out, ``take`` returns the next one. The process that made it is the only
    one that may use it.
    """

    def __init__(
        self,
        context: Any,
        job: Job,
        prefetch: int,
        timeout: float,
        *,
        in_order: bool,
        size: PoolSize | None = None,
        filling: Filling | None = None,
        report: PoolReport | None = None,
    ) -> None:
        """Start the forker and the workers: as many as the job says, or as ``size`` does.

        With ``filling``, workers write into the rings of the server that iterates the loader.
        """
        self.filling = filling
        self._fills = False
        self._oldest_ring = 0
        self._size = size
        # For those who watch: numbers are left there at each look.
        self._report = report or PoolReport()
        self._died = self._were_late = 0
        self._wanted = job.num_workers if size is None else size.workers
        # Out of order, a worker that is held up by a slow sample is stood in for.
        self._spares = 0 if in_order else self._wanted
        self._in_order = in_order
        self._held_up = 0
        self._stand_ins = 0
        self._prefetch = prefetch
        self._timeout = timeout
        self._owner = _owner(
            job.num_workers + self._spares + self._reserve(job), job.num_workers * prefetch
        )
        self._job = job
        self._build: Any = None
        self._epoch: object = None
        self._pid = os.getpid()
        self._look_at = 0.0
        self._killed: set[int] = set()
        # Workers in a row that ended before they had anything to do.
        self._stillborn = 0
        if not job.auto_collation or not _is_default(job):
            self._owner.travel_whole()
        self._begin(context)
        # Those that were started and have not ended; of them, those that were told to.
        self._alive: set[int] = set()
        self._retired: set[int] = set()
        self._start_and_retire()
        self._report.begin()
        self._tell()

    def _reserve(self, job: Job) -> int:
        """Return how many workers there may be at once beyond those that are wanted."""
        return 0

    def _begin(self, context: Any) -> None:
        """Start the forker, and keep what ends it."""
        job = self._job
        board, workers, slots, arena, arena_bytes = self._owner.descriptors()
        filling = self.filling
        lent = None if filling is None else filling.lend()
        self._fills = lent is not None
        if filling is not None and lent is not None:
            self._owner.fill(filling, self._wanted * self._prefetch)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _controls.add(ours)
        if context.get_start_method() == "fork":
            job.indexes = _folder_index.pack(job.dataset)
        arguments = (
            *(theirs, _forker.Descriptor(board), _forker.Descriptor(arena)),
            *((workers, slots, arena_bytes), job),
            None if lent is None else ([_forker.Descriptor(fd) for fd in lent[0]], lent[1]),
        )
        process = context.Process(target=_forker.run, args=arguments, daemon=True)
        try:
            # Workers never look at batches that this process holds: nothing is copied for them.
            without_batches(process.start)
        except BaseException:
            # What can't be pickled, for one.
            ours.close()
            raise
        finally:
            theirs.close()
            job.indexes = None
        self._control = ours
        self._forker = process.pid
        self._unread = b""
        self._close: Any = weakref.finalize(self, _close, self._owner, ours, process, self._pid)

    @property
    def is_here(self) -> bool:
        """Whether this process may use it."""
        return self._pid == os.getpid()

    @property
    def has_room(self) -> bool:
        """Whether another batch may be dealt out. Those that wait for a slow sample don't count."""
        return self._owner.in_flight() < self._wanted * self._prefetch + self._held_up

    @property
    def is_idle(self) -> bool:
        """Whether every batch that was dealt out was taken."""
        return self._owner.in_flight() == 0

    @property
    def asks(self) -> bool:
        """Whether the server is to be asked for a place in its ring."""
        return self.filling is not None and self.filling.asks

    def offer(self, keys: list[Any], epoch: int) -> int | None:
        """Deal a batch out; its number is returned, or None where it needs a place first."""
        if keys and all(type(key) is int and 0 <= key < _NUMBERS for key in keys):
            return self._owner.offer(keys, epoch)
        # A batch without samples is work for a worker, too.
        return self._owner.offer_pickled(pickle.dumps(keys), max(1, len(keys)), epoch)

    def take(self, *, is_held_up: bool = False) -> tuple[int, Any] | None:
        """Return the next batch that is done, with its number; ``filling`` if it is in its place.

        Raises what the dataset raised, in the order of the batches. While another batch is held up
        for want of a place, None is returned now and then.
        """
        if self._size is not None and self.has_room and not is_held_up:
            # The epoch's last batches: there is nothing more to deal out.
            self._size.pause()
        while True:
            event = self._owner.next(self._in_order)
            if event is None or time.monotonic() >= self._look_at:
                self._look_at_workers()
                self._look_at = time.monotonic() + _LOOK_EVERY_SECS
            if event is None:
                if is_held_up:
                    return None
                self._nothing_came()
                continue
            what, *of = event
            self._stillborn = 0
            if what == "made":
                return of[0], self._build(of[1])
            if what == "filled":
                return of[0], self.filling
            if what == "whole":
                number, packed, claimed = of
                batch = self._unpacked(number, packed)
                if claimed is not None and _samples(batch) != claimed:
                    self._give_places_back()
                return number, batch
            if what == "lanes":
                self._describe(of[0])
            elif what == "raised":
                raise _Raised(of[0], self._wrapped(of[1]))
            else:
                raise _Raised(of[0], None, of[1], of[2])

    def _nothing_came(self) -> None:
        """Called ten times a second while a batch is waited for."""

    def _unpacked(self, number: int, batch: Any) -> Any:
        return _unpacked(number, batch)

    def _wrapped(self, message: bytes) -> Any:
        return pickle.loads(message)

    def _describe(self, description: bytes) -> None:
        described = _sample.loads(description)
        if described is None:
            self._owner.describe(b"", None)
            return
        self._build = _sample.builder(described[0])
        if self.filling is not None:
            lanes = len(described[1])
            probe = self._build([torch.tensor([lane]) for lane in range(lanes)])
            self.filling.describe(probe, lanes)
        self._owner.describe(description, described)

    def serve(self, epoch: object) -> None:
        """Make batches for this epoch. Nobody wants what is in flight for another."""
        self._owner.abandon()
        if self._size is not None:
            self._size.pause()
        self._epoch = epoch

    def take_back(self) -> bool:
        """Have nothing made any more; whether somebody may still write to the server's ring."""
        if not self._fills or not self.is_here:
            return False
        is_filling = self._owner.take_back()
        if is_filling:
            self._look_at_workers()
        return is_filling

    def _give_places_back(self) -> None:
        """Have all that is in flight made elsewhere: a batch before it needs another place."""
        assert self.filling is not None
        self.filling.give_back()
        while self._owner.unclaim():
            self._look_at_workers()

    def serves(self, epoch: object) -> bool:
        """Whether it is the latest that it was to make batches for."""
        return self._epoch is epoch

    def close(self) -> None:
        """End the workers. Batches that are still alive keep their bytes."""
        if self.is_here:
            self._tell()
        self._close()
        self._report.close()

    def lost(self, sample: Any, tries: int) -> WorkerError:
        """Return the error for a sample whose workers died, or were too slow."""
        dataset = type(self._job.dataset).__name__
        stack = self._last_stack
        limit = f"timeout={self._timeout:g} s"
        why = f"took longer than {limit}" if self._was_late else "ended its worker process"
        text = f"sample {sample!r} of {dataset} {why}, {tries} times"
        if self._last_status:
            text += f" (the last one {self._last_status})"
        if stack.strip():
            text += "\n  where it was:\n" + "\n".join(f"    {line}" for line in stack.splitlines())
        return WorkerError(text)

    _kind = "process"
    _forker = 0
    _last_stack = ""
    _last_status = ""
    _was_late = False

    def _ask(self, what: bytes, worker: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(_forker.MESSAGE.pack(what, worker, 0))

    def _look_at_workers(self) -> None:
        """Replace those that have ended, and see to those that are late."""
        self._look_for_the_dead()
        if self._timeout > 0:
            self._look_for_the_late()
        oldest_ring = self._owner.oldest_ring
        if oldest_ring is not None and oldest_ring > self._oldest_ring:
            self._oldest_ring = oldest_ring
            self._ask(_forker.FORGET, oldest_ring)
        if self._spares:
            self._stand_in()
        if self._size is not None:
            self._wanted = self._size.look(self._owner, self._stand_ins, self._report)
        self._start_and_retire()
        self._tell()

    def _look_for_the_dead(self) -> None:
        for what, worker, note in self._told():
            if what == _forker.REFUSED:
                self._do_without(worker, note)
                continue
            pid, status, stack = note
            is_late = worker in self._killed
            self._killed.discard(worker)
            died = self._owner.worker_died(worker)
            self._alive.discard(worker)
            if died is None and worker in self._retired:
                continue
            if is_late:
                self._were_late += 1
            else:
                self._died += 1
            how = (
                f"exited with status {status}" if status >= 0 else f"was killed by signal {-status}"
            )
            self._last_stack, self._last_status, self._was_late = stack, how, is_late
            self._stillborn = 0 if died is not None else self._stillborn + 1
            if self._stillborn >= _TRIES * self._wanted:
                raise WorkerError(
                    f"worker processes end as soon as they are started: the last one {how}\n{stack}"
                )
            if died is not None:
                batch, sample, tries = died
                again = "the sample is made again" if tries < _TRIES else "the sample is given up"
                _log.warning(
                    "worker process %d %s at place %d of batch %d: "
                    "it is replaced, and %s (try %d of %d)",
                    *(pid, "took too long and was ended" if is_late else how),
                    *(sample, batch, again, tries, _TRIES),
                )

    def _tell(self) -> None:
        self._report.look(
            self._owner,
            self._wanted if self._size is None else self._size,
            stand_ins=self._stand_ins,
            died=self._died,
            late=self._were_late,
            forker=self._forker,
        )

    def _look_for_the_late(self) -> None:
        for worker, _, _ in self._owner.late(self._timeout):
            if worker not in self._killed:
                self._killed.add(worker)
                self._ask(_forker.KILL, worker)

    def _stand_in(self) -> None:
        """Have one more worker for each that is held up by a slow sample. They stay."""
        usual = (self._owner.sample_nanos() or 0) / 1e9
        self._held_up = len(self._owner.late(max(_SLOW_SECS, _SLOW_TIMES * usual)))
        self._stand_ins = max(self._stand_ins, min(self._held_up, self._spares))

    def _start_and_retire(self) -> None:
        """Start the workers that are missing; those that are too many end after their runs."""
        wanted = self._numbers(self._wanted + self._stand_ins)
        for worker in wanted & self._retired:
            self._retired.discard(worker)
            self._owner.retire(worker, is_to_end=False)
        for worker in sorted(wanted - self._alive):
            self._alive.add(worker)
            self._start(worker)
        for worker in self._alive - wanted - self._retired:
            self._retired.add(worker)
            self._owner.retire(worker, is_to_end=True)

    def _numbers(self, workers: int) -> set[int]:
        """Return which numbers so many workers have."""
        return set(range(workers))

    def _start(self, worker: int) -> None:
        self._ask(_forker.START, worker)

    def _do_without(self, worker: int, why: str) -> None:
        """Go on with those that could be started, if their number is ours to choose."""
        self._alive.discard(worker)
        there = len(self._alive) - self._stand_ins
        if self._size is None or there < 1:
            raise WorkerError(
                f"no {self._kind} could be started for worker {worker}: {why}\n"
                "  give a smaller num_workers, or raise the limits on processes and memory"
            )
        self._wanted = self._size.refused(there)
        _log.warning("the pool stays at %d workers: no more could be started (%s)", there, why)

    def _told(self) -> list[tuple[bytes, int, Any]]:
        head = _forker.MESSAGE
        told = []
        try:
            while chunk := self._control.recv(1 << 16):
                self._unread += chunk
            raise WorkerError("the process that a loader's workers are started from is gone")
        except BlockingIOError:
            pass
        while len(self._unread) >= head.size:
            what, worker, size = head.unpack_from(self._unread)
            if len(self._unread) < head.size + size:
                break
            note = pickle.loads(self._unread[head.size : head.size + size])
            self._unread = self._unread[head.size + size :]
            told.append((what, worker, note))
        return told


class _Raised(Exception):
    """A batch that could not be made."""

    def __init__(self, number: int, wrapped: Any, sample: int = 0, tries: int = 0) -> None:
        super().__init__(number)
        self.number = number
        self.wrapped = wrapped
        self.sample = sample
        self.tries = tries


Raised = _Raised


def _unpacked(number: int, batch: Any) -> Any:
    try:
        return _whole_batch.unpack(batch)
    except Exception:
        wrapped = ExceptionWrapper(where="where a worker's batch was unpickled")
        raise _Raised(number, wrapped) from None


def _samples(batch: Any) -> int | None:
    """Return how many samples a batch has, where its first leaf tells."""
    leaves = pytree.tree_leaves(batch)
    shape = getattr(leaves[0], "shape", None) if leaves else None
    return int(shape[0]) if shape else None


def _is_default(job: Job) -> bool:
    from torch.utils.data import default_collate

    return job.collate_fn is default_collate


def _owner(workers: int, in_flight: int) -> PoolOwner:
    size = _ARENA_BYTES
    while True:
        try:
            return PoolOwner(workers, in_flight, size, _TRIES)
        except OSError:
            # A limit on address space, or a kernel that counts what is only reserved.
            if size <= _LEAST_ARENA_BYTES:
                raise
            size //= 4


def _close(owner: PoolOwner, control: socket.socket, process: Any, pid: int) -> None:
    if pid != os.getpid():
        return
    owner.close()
    control.close()
    process.join()
