"""Serving a loader."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

# _stack: the core looks it up when a loader hangs, perhaps in an import.
from feedline import _stack as _stack
from feedline import _start_record
from feedline._core import ServerCore, check_name
from feedline._core import feeds as _feeds
from feedline._errors import FeedlineError, FeedValueError, StalledError, explained, given
from feedline._loader import (
    begin_epoch,
    check_loader,
    is_one_shot,
    is_sequential,
    length_of,
    pool_of,
)
from feedline._options import check_options, server_parameters, showing
from feedline._seeding import import_generators, seed_epoch
from feedline._server_options import ServerOptions
from feedline._state import Place, StateFile

_log = logging.getLogger("feedline")

_METRICS_INTERVAL_SECS = 5.0
# Of what an order is known by, in bytes (`wire::MAX_ORDER`).
_LONGEST_ORDER = 1024


class FeedInfo(NamedTuple):
    """A feed that runs."""

    name: str
    pid: int
    path: str


def feeds() -> list[FeedInfo]:
    """List what runs on this machine for this user."""
    return [FeedInfo(*feed) for feed in _feeds()]


class Server:
    """Serves a loader from a thread of this process; a context manager.

    The name is taken and consumers can attach once ``start()`` has returned. What the loader raises
    is raised by ``wait()``, and by every consumer, also by one that attaches later: a feed that has
    failed keeps its name until ``wait()`` has raised the error, until ``stop()``, or until the
    ``with`` block or the process ends. Costs the ring's memory (8 batches, at least 16 MB, unless
    ``ring`` says otherwise), the history's, and one copy of each batch.

    ``history`` is kept behind the ring for consumers that come late: a share of the epoch, or a
    size such as "2GB"; with ``history_dir`` in a file there. ``lag`` says who waits for whom:
    "block", the fastest for the slowest once the ring is full; "history", once the history is full;
    "skip", nobody, and slow consumers lose samples. Where epochs are shorter than the ring, the
    loader is at most ``epochs_ahead`` epochs ahead of the slowest consumer (with "skip", of the
    fastest), or of the first one to come. ``replay=True`` loads one epoch and serves it again and
    again. ``state_file`` lets a server that is started anew go on in mid-epoch, if the loader has
    ``state_dict`` and ``load_state_dict``.

    With ``seed`` an epoch's order and draws depend on (seed, epoch) only, in every run and after a
    restart: Python's, NumPy's and torch's generators of this process, and those that a DataLoader
    was given, are seeded when an epoch begins. Nobody else should draw from them in this process.

    A loader that has not yielded for ``loader_warn_secs`` (None: no limit) is reported with its
    Python stack and its worker processes, in the log and by every consumer that is attached, and
    again after twice that time, and so on. After ``loader_timeout_secs`` the feed is given up: a
    ``StalledError`` for ``wait()`` and every consumer. The loader itself can't be interrupted; its
    thread stays where it is until the process ends.

    Only this user's processes, and root's, can attach; ``allow=("alice", 1001, "@lab")`` lets in
    others, by name, uid or group, if they can reach the folder (FEEDLINE_DIR).

    ``metrics_port`` answers Prometheus on 127.0.0.1, to any user of this machine; 0 picks a free
    port, which ``stats()`` tells. ``metrics_file`` gets a line of JSON every 5 s and at the end:
    what ``stats()`` gives, some 2 kB. If it can't be written later, the log says so once.
    """

    @showing(server_parameters())
    def __init__(
        self,
        loader: Any,
        name: str,
        **options: Unpack[ServerOptions],
    ) -> None:
        """Check the arguments; nothing runs before ``start()``."""
        check_loader(loader)
        if not isinstance(name, str):
            raise TypeError(f"a feed's name is a str, not {name!r}")
        check_name(name)
        self._options = checked = check_options(options)
        if is_one_shot(loader) and not checked["replay"]:
            epochs = checked["epochs"]
            if epochs is not None and epochs > 1:
                raise FeedValueError(
                    explained(
                        given("epochs", epochs),
                        f" of a {type(loader).__name__}, which can be iterated once",
                        hint="pass an object whose iter() starts anew, such as a DataLoader or a "
                        "list",
                    )
                )
            self._options = checked.but("epochs", 1)
        self._loader = loader
        self._name = name
        state_file = checked["state_file"]
        self._state = None if state_file is None else StateFile(state_file, loader, name)
        # What is for the core beside the options.
        self._launch: dict[str, Any] = {
            "run": None,
            "first_consumer_secs": None,
            "metrics_interval_secs": _METRICS_INTERVAL_SECS,
            "for_command_line": False,
        }
        # Called with an epoch's number before it begins.
        self._before_epoch: Callable[[int], None] | None = None
        self._core: ServerCore | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._stopped = False
        self._gave_up = False

    @property
    def name(self) -> str:
        """The feed's name."""
        return self._name

    def start(self) -> Self:
        """Take the name and load in a thread; return as soon as consumers can attach."""
        self._bind()
        _running.add(self)
        self._thread = threading.Thread(
            target=self._serve_quietly, name=f"feedline-{self._name}", daemon=True
        )
        self._thread.start()
        return self

    def wait(self, timeout_secs: float | None = None) -> bool:
        """Wait until the epochs are done and read, or the server was stopped.

        Raises what the loader raised, or that it hangs. False if the time was over first.
        """
        if self._thread is None:
            raise FeedlineError(f'the server of feed "{self._name}" was not started')
        deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        while self._thread.is_alive() and not self._stopped and not self._has_given_up():
            left = 0.1 if deadline is None else min(0.1, deadline - time.monotonic())
            if left < 0:
                return False
            self._thread.join(left)
        self._has_given_up()
        if self._error is not None:
            error, self._error = self._error, None
            if self._core is not None:
                self._core.stop("its loader failed")
            raise error
        return True

    def stop(self) -> None:
        """End the feed; consumers get a ``ServerLostError``, and the name is free afterwards."""
        self._end(f"its server (pid {os.getpid()}) was told to stop")

    def _end(self, why: str) -> None:
        self._stopping = True
        if self._core is not None:
            self._core.stop(why)
        if self._thread is not None and self._thread is not threading.current_thread():
            # A loader that hangs can't be interrupted; the feed has ended all the same.
            self._thread.join(1.0)
        self._stopped = True
        _running.discard(self)

    def __repr__(self) -> str:
        return f"<feedline.Server {self._name!r}>"

    def stats(self) -> dict[str, Any]:
        """How things stand: what was published, the ring, and every consumer."""
        if self._core is None:
            raise FeedlineError(f'the server of feed "{self._name}" was not started')
        return self._core.stats()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._end("it was interrupted (Ctrl-C)")
        else:
            self.stop()
        self._has_given_up()
        if kind is None and self._error is not None:
            failure, self._error = self._error, None
            raise failure

    def _has_failed(self) -> bool:
        try:
            return bool(self.stats()["state"] == "failed")
        except FeedlineError:  # it was not started, or is the parent process's
            return False

    def _has_given_up(self) -> bool:
        """Whether the feed gave up on a loader that hangs: its thread won't say so."""
        message = None if self._core is None else self._core.gave_up()
        if message is not None and not self._gave_up:
            self._gave_up = True
            self._error = StalledError(message)
        return self._gave_up

    def _bind(self, beside: ServerCore | None = None) -> ServerCore:
        """Take the name. For want of consumers, the feed ends together with the one beside it."""
        if self._core is not None:
            raise FeedlineError(f'the server of feed "{self._name}" was started already')
        if self._options["seed"] is not None:
            import_generators()
        options, own = self._options, self._launch["run"]
        run = secrets.token_hex(8) if own is None else f"{own:016x}"
        resume = None
        if self._state is not None:
            resume = self._state.load()
            options = options.but("samples", options["samples"] or self._state.samples)
            # The loader goes on in the order that it was in.
            run = self._state.run = self._state.run or run
        launch = {**self._launch, "resume": resume, "order": self._order(run)}
        for server in list(_running):
            # One that has failed in this process, in a notebook perhaps, makes room for the next.
            if server._name == self._name and server._has_failed():
                server.stop()
        self._core = ServerCore(self._name, options, **launch, beside=beside)
        if _start_record.serving != self._name:
            _start_record.forget(self._name)
        return self._core

    def _order(self, run: str) -> str:
        """What an epoch's order depends on, beside the epoch; states of consumers hold it."""
        seed = self._options["seed"]
        order = f"run {run}" if seed is None else f"seed {seed}"
        if hasattr(self._loader, "order_identity") and (own := self._loader.order_identity()):
            # A loader of ours: with the seed that says all.
            return f"{order}: {own}"[:_LONGEST_ORDER]
        return "sequential" if seed is None and is_sequential(self._loader) else order

    def _run(self, core: ServerCore) -> None:
        try:
            length, tell = length_of(self._loader), begin_epoch(self._loader)
        except Exception as error:
            trace = traceback.format_exc()
            core.fail(f"the loader raised {error!r} when asked for its length\n\n{trace}", error)
        state, seed = self._state, self._options["seed"]
        mark = None

        def begin(epoch: int) -> None:
            tell(epoch)
            if seed is not None:
                seed_epoch(seed, epoch, self._loader)
            if self._before_epoch is not None:
                self._before_epoch(epoch)
            if state is not None:
                state.begin(epoch)

        if state is not None:

            def mark(head: Place, oldest: Place, needed: Place | None) -> None:
                state.samples = core.samples_per_epoch
                state.mark(head, oldest, needed)

        allow_pickle = self._options["allow_pickle"]
        seek = getattr(self._loader, "_seek", None)
        about = {**length._asdict(), "pool": pool_of(self._loader)}
        core.run(self._loader, begin, mark, seek, **about, allow_pickle=allow_pickle)
        if state is not None:
            state.close(is_done=core.stats()["state"] == "ended")

    def _serve_quietly(self) -> None:
        assert self._core is not None
        try:
            self._run(self._core)
        except BaseException as error:  # it is raised again by wait()
            self._error = error
            if not self._stopping:
                _log.error('feed "%s" failed: %s', self._name, str(error))
        else:
            # A feed that has failed keeps its name until stop(), for late consumers.
            _running.discard(self)


@showing(server_parameters())
def serve(loader: Any, name: str, **options: Unpack[ServerOptions]) -> None:
    """Serve a loader from this thread until its epochs are done and read.

    Takes what ``Server`` takes. Ctrl-C ends it, and consumers learn of it. With
    ``loader_timeout_secs`` the loader runs in another thread, because a call that hangs can't be
    interrupted.
    """
    server = Server(loader, name, **options)
    if server._options["loader_timeout_secs"] is not None:
        with server:
            _log.info('serving feed "%s" (pid %d)', name, os.getpid())
            server.wait()
        return
    core = server._bind()
    _running.add(server)
    _log.info('serving feed "%s" (pid %d)', name, os.getpid())
    try:
        server._run(core)
    finally:
        _running.discard(server)
        server.stop()


_running: weakref.WeakSet[Server] = weakref.WeakSet()


def _stop_all() -> None:
    for server in list(_running):
        server.stop()


# A thread that still runs Python code when the interpreter goes would hang or crash it.
atexit.register(_stop_all)


__all__ = ["FeedInfo", "Server", "feeds", "serve"]
