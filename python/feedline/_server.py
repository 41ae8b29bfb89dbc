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
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

# _stack: the core looks it up when a loader hangs, perhaps in an import.
from feedline import _stack as _stack
from feedline import _starting
from feedline._access import resolve_allow
from feedline._core import MOST_EPOCHS_AHEAD, ServerCore, check_name, parse_size
from feedline._core import feeds as _feeds
from feedline._errors import FeedlineError, FeedValueError, StalledError
from feedline._loader import begin_epoch, check_loader, is_one_shot, is_sequential, length_of
from feedline._seeding import checked_seed, import_generators, seed_epoch
from feedline._state import Place, StateFile

_log = logging.getLogger("feedline")

_DEFAULT_HISTORY = 0.02
_METRICS_INTERVAL_SECS = 5.0


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
    failed keeps its name until ``wait()`` has said so, ``stop()``, or the end of the ``with`` block
    or of the process. Costs the ring's memory (8 batches, at least 16 MB, unless ``ring`` says
    otherwise), the history's, and one copy of each batch.

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

    A loader that has not yielded for ``loader_warn_secs`` (None: never mind) is reported with its
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

    def __init__(
        self,
        loader: Any,
        name: str,
        *,
        epochs: int | None = None,
        samples: int | None = None,
        wait_for: int = 1,
        ring: str | int | None = None,
        history: float | str = _DEFAULT_HISTORY,
        history_dir: str | os.PathLike[str] | None = None,
        replay: bool = False,
        lag: Literal["block", "history", "skip"] = "block",
        epochs_ahead: int = 2,
        state_file: str | os.PathLike[str] | None = None,
        stall_timeout_secs: float = 60.0,
        loader_warn_secs: float | None = 30.0,
        loader_timeout_secs: float | None = None,
        linger_secs: float | None = None,
        seed: int | None = None,
        allow_pickle: bool = False,
        whole_batches: bool = False,
        allow: Iterable[str | int] = (),
        metrics_port: int | None = None,
        metrics_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Check the arguments; nothing runs before ``start()``."""
        check_loader(loader)
        if not isinstance(name, str):
            raise TypeError(f"a feed's name is a str, not {name!r}")
        check_name(name)
        if lag not in ("block", "history", "skip"):
            raise FeedValueError(f'lag={lag!r} is not one of "block", "history", "skip"')
        if is_one_shot(loader) and not replay:
            if epochs is not None and epochs > 1:
                raise FeedValueError(
                    f"epochs={epochs} of a {type(loader).__name__}, which can be iterated once\n"
                    "  pass an object whose iter() starts anew, such as a DataLoader or a list"
                )
            epochs = 1
        self._loader = loader
        self._allow_pickle = allow_pickle
        self._name = name
        self._state = None if state_file is None else StateFile(state_file, loader, name)
        if replay and self._state is not None:
            raise FeedValueError(
                "replay=True and state_file=...: an epoch that is kept whole is loaded anew\n"
                "  leave one of them out"
            )
        self._seed = checked_seed(seed)
        ring_bytes, ring_samples = _ring(ring)
        history_bytes, history_share = _history(history)
        self._options: dict[str, Any] = {
            "epochs": _count("epochs", epochs, least=1),
            "samples": _count("samples", samples, least=0),
            "wait_for": _count("wait_for", wait_for, least=1),
            "ring_bytes": ring_bytes,
            "ring_samples": ring_samples,
            "history_bytes": history_bytes,
            "history_share": history_share,
            "history_dir": _folder(history_dir),
            "replay": bool(replay),
            "lag": lag,
            "epochs_ahead": _epochs_ahead(epochs_ahead),
            "stall_timeout_secs": _secs("stall_timeout_secs", stall_timeout_secs),
            "linger_secs": None if linger_secs is None else _secs("linger_secs", linger_secs),
            "first_consumer_secs": None,
            "run": None,
            "whole_batches": bool(whole_batches),
            "loader_warn_secs": _patience("loader_warn_secs", loader_warn_secs),
            "loader_timeout_secs": _patience("loader_timeout_secs", loader_timeout_secs),
            "allow": resolve_allow(allow),
            "metrics_port": _port(metrics_port),
            "metrics_file": None if metrics_file is None else os.path.abspath(metrics_file),
            "metrics_interval_secs": _METRICS_INTERVAL_SECS,
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
        if self._seed is not None:
            import_generators()
        options = dict(self._options, resume=None)
        run = secrets.token_hex(8) if options["run"] is None else f"{options['run']:016x}"
        if self._state is not None:
            options["resume"] = self._state.load()
            options["samples"] = options["samples"] or self._state.samples
            # The loader goes on in the order that it was in.
            run = self._state.run = self._state.run or run
        options["order"] = self._order(run)
        for server in list(_running):
            # One that has failed in this process, in a notebook perhaps, makes room for the next.
            if server._name == self._name and server._has_failed():
                server.stop()
        self._core = ServerCore(self._name, **options, beside=beside)
        if _starting.hosted != self._name:
            _starting.forget(self._name)
        return self._core

    def _order(self, run: str) -> str:
        """What an epoch's order depends on, beside the epoch; states of consumers hold it."""
        if self._seed is not None:
            return f"seed {self._seed}"
        return "sequential" if is_sequential(self._loader) else f"run {run}"

    def _run(self, core: ServerCore) -> None:
        try:
            length, tell = length_of(self._loader), begin_epoch(self._loader)
        except Exception as error:
            trace = traceback.format_exc()
            core.fail(f"the loader raised {error!r} when asked for its length\n\n{trace}", error)
        state = self._state
        mark = None

        def begin(epoch: int) -> None:
            tell(epoch)
            if self._seed is not None:
                seed_epoch(self._seed, epoch, self._loader)
            if self._before_epoch is not None:
                self._before_epoch(epoch)
            if state is not None:
                state.begin(epoch)

        if state is not None:

            def mark(head: Place, oldest: Place, needed: Place | None) -> None:
                state.samples = core.samples_per_epoch
                state.mark(head, oldest, needed)

        core.run(self._loader, begin, mark, **length._asdict(), allow_pickle=self._allow_pickle)
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
            # One that has failed has its name until stop(): whoever attaches is told why.
            _running.discard(self)


def serve(loader: Any, name: str, **options: Any) -> None:
    """Serve a loader from this thread until its epochs are done and read.

    Takes what ``Server`` takes. Ctrl-C ends it, and consumers learn of it. With
    ``loader_timeout_secs`` the loader runs in another thread: one that hangs can't be left.
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


def _ring(ring: object) -> tuple[int | None, int | None]:
    if ring is None:
        return None, None
    if isinstance(ring, str):
        size = parse_size(ring)
        if size is None:
            raise FeedValueError(
                f'ring="{ring}" is not a size\n  write "512MB", "2GiB", or a number of samples'
            )
        return size, None
    return None, _count("ring", ring, least=1)


def _history(history: object) -> tuple[int | None, float | None]:
    """Give bytes, or a share of the epoch, or neither for the default."""
    if isinstance(history, str):
        size = parse_size(history)
        if size is not None:
            return size, None
    elif isinstance(history, int | float) and not isinstance(history, bool) and 0 <= history <= 1:
        return None, None if history == _DEFAULT_HISTORY else float(history)
    shown = f'"{history}"' if isinstance(history, str) else repr(history)
    raise FeedValueError(
        f"history={shown} is neither a share of the epoch nor a size\n"
        '  write 0.5 for half of it, 1.0 for all of it, or "2GB"'
    )


def _folder(history_dir: str | os.PathLike[str] | None) -> str | None:
    if history_dir is None:
        return None
    folder = os.path.abspath(history_dir)
    if not os.path.isdir(folder):
        raise FeedValueError(
            f'history_dir="{os.fspath(history_dir)}" is not a folder\n'
            f"  make it first: mkdir -p {folder}"
        )
    return folder


def _port(port: object) -> int | None:
    if port is None:
        return None
    if (
        isinstance(port, bool)
        or not hasattr(port, "__index__")
        or not 0 <= port.__index__() < 65536
    ):
        raise FeedValueError(
            f"metrics_port={port!r} is not a port\n"
            "  give a number up to 65535, or 0 for any that is free"
        )
    return int(port.__index__())


def _secs(what: str, value: Any) -> float:
    secs = float(value)
    if not 0 <= secs < 1e9:
        raise FeedValueError(f"{what}={secs:g} is not a time to wait")
    return secs


def _patience(what: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__float__") or not 0 < float(value) < 1e9:
        raise FeedValueError(
            f"{what}={value!r} is not a time to wait\n"
            "  give a number of seconds greater than 0, or None to wait without end"
        )
    return float(value)


def _count(what: str, value: object, *, least: int) -> int | None:
    if value is None and what in ("epochs", "samples"):
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise FeedValueError(f"{what}={value!r} is not a whole number")
    count = int(value.__index__())
    if count < least:
        raise FeedValueError(f"{what}={count} is too small: it is at least {least}")
    return count


def _epochs_ahead(value: object) -> int | None:
    count = _count("epochs_ahead", value, least=0)
    if count is not None and count > MOST_EPOCHS_AHEAD:
        raise FeedValueError(
            f"epochs_ahead={count} is too large: a feed keeps count of {MOST_EPOCHS_AHEAD} epochs"
        )
    return count


__all__ = ["FeedInfo", "Server", "feeds", "serve"]
