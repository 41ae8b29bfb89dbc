"""The process that a pool's workers are forked from.

It has the dataset and one thread, so that workers share the dataset's memory, come within
milliseconds, and don't care what the threads of the training job were at. It starts and kills
workers when it is told to, and says which have ended.

    training job ──start n, kill n──▶ forker ──fork──▶ worker, worker, ...
                 ◀──ended n, status, stack──┤
                 ◀──refused n, why──────────┘

If the training job ends in whatever way, the socket does, and with it the forker and its workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
import traceback
from multiprocessing import reduction
from typing import Any

from feedline import _folder_index, _pool_worker
from feedline._core import PoolRings
from feedline._pool_worker import STACK_SIGNAL, Job

MESSAGE = struct.Struct("<cII")
"""What is asked or told, the worker's number, and how many bytes follow what is told."""

START, KILL, ENDED, REFUSED = b"s", b"k", b"e", b"r"
FORGET = b"f"
"""Rings before this one, which stands in the worker's place, are no longer written to."""

_PR_SET_PDEATHSIG = 1
# A worker that is asked where it is answers at once, unless it is deep inside C.
_STACK_SECS = 0.5
_CLOSING_SECS = 5.0


class Descriptor:
    """A descriptor that travels with the arguments of a process, however that is started."""

    def __init__(self, fd: int) -> None:
        """Keep its number."""
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _descriptor, (reduction.DupFd(self.fd),)


def _descriptor(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


def run(
    control: socket.socket,
    board: Descriptor,
    arena: Descriptor,
    sizes: Any,
    job: Job,
    lent: tuple[list[Descriptor], int] | None,
) -> None:
    """Serve the training job until it is gone."""
    workers, slots, arena_bytes = sizes
    # Before there is a ring: nobody can map one to write into it later.
    rings = None if lent is None else PoolRings([ring.fd for ring in lent[0]], lent[1])
    if job.indexes is not None:
        _folder_index.put(job.indexes, keep_lists=True)
    else:
        _folder_index.put(_folder_index.pack(job.dataset), keep_lists=False)
    forker = Forker(control, (board.fd, workers, slots, arena.fd, arena_bytes), job, rings)
    forker.serve()


class Forker:
    """Starts workers, ends them, and reports those that have ended."""

    def __init__(
        self, control: socket.socket, descriptors: Any, job: Job, rings: PoolRings | None
    ) -> None:
        """Begin without workers."""
        self._rings = rings
        self._control = control
        self._descriptors = descriptors
        self._job = job
        self._pids: dict[int, int] = {}
        self._stacks: dict[int, int] = {}
        self._parent = os.getppid()

    def serve(self) -> None:
        """Do what is asked until nobody asks any more; then end all workers, and this process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A worker that ends wakes us.
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Collections would write to pages that all workers share.
        gc.freeze()
        is_open = True
        while is_open:
            watched: list[Any] = [self._control, reader]
            ready, _, _ = select.select(watched, [], [])
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)
            if self._control in ready:
                is_open = self._obey()
            self._reap()
        self._end()
        os._exit(0)

    def _obey(self) -> bool:
        try:
            asked = self._control.recv(MESSAGE.size, socket.MSG_WAITALL)
        except ConnectionError:
            return False
        if len(asked) < MESSAGE.size:
            return False
        what, worker, _ = MESSAGE.unpack(asked)
        if what == START:
            self._start(worker)
        elif what == KILL and worker in self._pids:
            self._kill(worker)
        elif what == FORGET and self._rings is not None:
            self._rings.forget_before(worker)
        return True

    def _start(self, worker: int) -> None:
        stack = os.memfd_create("feedline-stack", os.MFD_CLOEXEC)
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            # A limit on processes, or on memory.
            os.close(stack)
            self._tell(REFUSED, worker, str(error))
            return
        if pid == 0:
            self._work(worker, stack)
        self._pids[worker], self._stacks[worker] = pid, stack

    def _work(self, worker: int, stack: int) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            forker = os.getppid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != forker:
                os._exit(1)
            self._control.close()
            _pool_worker.run(self._job, self._descriptors, worker, stack, self._rings)
            status = 0
        except BaseException as error:
            os.pwrite(stack, traceback.format_exc().encode(), 0)
            if isinstance(error, SystemExit):
                status = error.code if isinstance(error.code, int) else 1
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _kill(self, worker: int) -> None:
        """Ask a worker where it is, and end it."""
        pid, stack = self._pids[worker], self._stacks[worker]
        os.kill(pid, STACK_SIGNAL)
        asked = time.monotonic()
        while os.fstat(stack).st_size == 0 and time.monotonic() < asked + _STACK_SECS:
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for worker, pid in list(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == 0:
                continue
            del self._pids[worker]
            stack = self._stacks.pop(worker)
            text = os.pread(stack, 1 << 16, 0)
            os.close(stack)
            code = os.waitstatus_to_exitcode(status)
            self._tell(ENDED, worker, (pid, code, text.decode(errors="replace")))

    def _tell(self, what: bytes, worker: int, note: Any) -> None:
        pickled = pickle.dumps(note)
        with contextlib.suppress(OSError):
            self._control.sendall(MESSAGE.pack(what, worker, len(pickled)) + pickled)

    def _end(self) -> None:
        """The pool is closed, or its owner is dead: workers that don't end are killed."""
        deadline = time.monotonic() + _CLOSING_SECS
        # Whoever is killed closes its end before it ceases to be our parent.
        while self._pids and time.monotonic() < deadline and os.getppid() == self._parent:
            self._reap()
            time.sleep(0.002)
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
