"""One script, started many times: the first one starts the server, all attach."""

from __future__ import annotations

import inspect
import itertools
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from feedline import _starting
from feedline._core import feeds
from feedline._errors import (
    FeedlineError,
    FeedNotFoundError,
    FeedValueError,
    LoaderError,
    StalledError,
)
from feedline._feed import Feed, attach
from feedline._loader import made_by
from feedline._parcel import pack, surroundings
from feedline._seat import noted
from feedline._server import Server
from feedline._shard import resolve_shard
from feedline._starting import Record, log_path

_log = logging.getLogger("feedline")

# A server that dies so often while it makes its loader, or before, will die again.
_MOST_CRASHES = 3
_MOST_ATTEMPTS = 10
# Making a loader of a large data set and its first batch may take minutes.
_TIMEOUT_SECS = 300.0
_SAY_SO_AFTER_SECS = 30.0
_LARGE_BYTES = 500_000_000
# What is longer says nothing to a reader.
_LONGEST_VALUE = 100
# What tells a process that it is one rank of many: the server is nobody's.
_OF_RANKS = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR"),
    *("MASTER_PORT", "SLURM_PROCID", "SLURM_LOCALID"),
}
_OF_LAUNCHERS = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_")


def share(
    make_loader: Callable[[], Any],
    name: str,
    *,
    batch_size: int | None = None,
    linger_secs: float | None = 10.0,
    **both: Any,
) -> Feed:
    """Share the loader that ``make_loader()`` returns with all who call this with the same name.

    The first one to come starts a server: a process of its own, which calls ``make_loader`` and
    leaves ``linger_secs`` after the last consumer. Takes the keywords of ``Server``, which count
    for whoever starts it, and of ``attach``; ``timeout_secs`` (300) covers making the loader and
    its first batch.

    ``make_loader`` goes to the server by value: lambdas, closures and functions of a script or a
    notebook will do, with what they refer to, as long as that can be pickled. The script itself
    isn't run again. A generator function is called anew for each epoch. Costs the start of an
    interpreter, and whatever ``make_loader`` imports.

    What the loader prints goes to a log file beside the feed's socket; errors name it. What
    ``make_loader`` or the loader raises is raised here and by every consumer, with its traceback.
    With ``reconnect_secs``, a server that was killed is started again, and goes on with the epoch
    in the same order. ``epochs`` are the feed's, from its first job on: mostly best left out.

    ``FEEDLINE_MODE=off`` in the environment makes this return ``make_loader()``;
    ``FEEDLINE_MODE=local`` serves from a thread of this process, and nobody else.
    """
    if not callable(make_loader):
        way_out = "share(make_loader, name): the function comes first" if callable(name) else ""
        raise TypeError(
            f"make_loader is a function that returns a loader, not a {type(make_loader).__name__}\n"
            f"  {way_out or 'share(lambda: loader, ...)'}"
        )
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise FeedlineError(
            f'share(..., "{name}") was called by a worker process that imports the script\n'
            '  put it under: if __name__ == "__main__":'
        )
    if _starting.hosted == name:
        raise FeedlineError(
            f'share(..., "{name}") was called in the server\'s own process, '
            "which imports the script\n"
            '  put it into a function, or under: if __name__ == "__main__":'
        )
    for_server, for_consumer = _sorted(both)
    # What is wrong with them should be said here, not in the server's log.
    Server([], name, linger_secs=linger_secs, **_without(for_server, "state_file"))
    for_consumer = {"batch_size": batch_size, "timeout_secs": _TIMEOUT_SECS, **for_consumer}
    mode = os.environ.get("FEEDLINE_MODE", "")
    if mode == "off":
        plain: Feed = _plain(make_loader, for_consumer)
        return plain
    if mode == "local":
        return _local(make_loader, name, for_server, for_consumer)
    if mode not in ("", "shared"):
        raise FeedValueError(
            f'FEEDLINE_MODE="{mode}" is not one of "off", "local", "shared"\n'
            "  unset it to share the loader"
        )
    starter = Starter(make_loader, name, {**for_server, "linger_secs": linger_secs})
    note = f"what its server printed: {log_path(name)}"
    try:
        feed = attach(name, **for_consumer, _when_missing=starter)
    except FeedNotFoundError:
        waited = for_consumer["timeout_secs"]
        raise StalledError(
            f'the server of feed "{name}" is still being started after {waited:g} s: make_loader '
            f"has not returned\n  {note}\n  give it longer: timeout_secs=..."
        ) from None
    except FeedlineError as error:
        if isinstance(error, FeedValueError) or not log_path(name).exists():
            raise  # nothing was started
        raise noted(error, note) from error.__cause__
    feed._seat.note = note
    starter.compare(feed.stats()["server_pid"])
    return feed


def _sorted(both: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell a server's keywords from a consumer's; some are both."""
    of_server = _keywords(Server.__init__)
    of_consumer = _keywords(attach)
    for key in both:
        if key not in of_server | of_consumer:
            raise TypeError(
                f"share() got an unexpected keyword argument {key!r}\n"
                "  it takes what Server and attach take"
            )
    return (
        {key: value for key, value in both.items() if key in of_server},
        {key: value for key, value in both.items() if key in of_consumer},
    )


def _keywords(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name
        for one in parameters
        if one.kind is one.KEYWORD_ONLY and not one.name.startswith("_")
    }


def _without(options: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in keys}


def _plain(make_loader: Callable[[], Any], options: dict[str, Any]) -> Any:
    loader = made_by(make_loader)
    asked = {key: value for key, value in options.items() if value and key != "timeout_secs"}
    if asked.get("batch_size") == getattr(loader, "batch_size", None):
        asked.pop("batch_size", None)
    if asked:
        _log.warning(
            "FEEDLINE_MODE=off: the plain loader knows nothing of %s\n"
            "  FEEDLINE_MODE=local serves in this process, with all of it",
            ", ".join(_text(asked).split("\n")),
        )
    return loader


def _local(
    make_loader: Callable[[], Any],
    name: str,
    for_server: dict[str, Any],
    for_consumer: dict[str, Any],
) -> Feed:
    if resolve_shard(for_consumer.get("shard")) is not None:
        raise FeedValueError(
            "FEEDLINE_MODE=local and shard=: each rank would serve a loader of its own\n"
            "  unset FEEDLINE_MODE, or start the script without other ranks"
        )
    own = f"{name[:30]}.local-{os.getpid()}-{next(_count)}"
    server = Server(made_by(make_loader), own, **for_server).start()
    try:
        feed = attach(own, **for_consumer)
    except BaseException:
        server.stop()
        raise
    seat = feed._seat
    seat.name, seat.keeps = name, server
    weakref.finalize(seat, server.stop)
    return feed


_count = itertools.count(1)


class Starter:
    """Has a feed's server started while nobody serves it. Never waits; called again and again."""

    def __init__(self, make_loader: Callable[[], Any], name: str, options: dict[str, Any]) -> None:
        """Remember what to start."""
        self._make_loader = make_loader
        self._name = name
        self._options = options
        self._source = _source(make_loader)
        self._since = _starting.now()
        self._said = False

    def __call__(self) -> None:
        """Start the server, unless somebody is at it; raise why it can't be."""
        lock = _starting.try_lock(self._name)
        if lock is None:
            self._say_so()
            return
        with lock:
            if any(name == self._name for name, _, _ in feeds()):
                return
            record = _starting.read(lock)
            if record.failed > self._since:
                raise LoaderError(record.message)
            # What a server printed that died under us is worth keeping.
            goes_on = record.began > self._since
            if not goes_on:
                record = Record()
            if record.crashes >= _MOST_CRASHES or record.attempts >= _MOST_ATTEMPTS:
                times = max(record.crashes, record.attempts)
                raise FeedlineError(
                    f'the server of feed "{self._name}" died {times} times while it was '
                    f"being started\n  what its server printed: {log_path(self._name)}"
                )
            payload = self._payload()
            if len(payload) > _LARGE_BYTES:
                _log.warning(
                    'what make_loader of feed "%s" refers to goes to its server, %d MB of it\n'
                    "  make data sets inside make_loader, and leave models out of it",
                    self._name,
                    len(payload) // 1_000_000,
                )
            record.began, record.attempts = _starting.now(), record.attempts + 1
            record.options, record.source = _text(self._options), self._source
            _starting.write(lock, record)
            self._start(lock.fileno(), payload, append=goes_on)

    def _payload(self) -> bytes:
        parcel = pack(self._make_loader)
        host = {"options": self._options, "around": surroundings(), "bytes": len(parcel)}
        return pickle.dumps(host) + parcel

    def _start(self, lock: int, payload: bytes, *, append: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        log = os.open(log_path(self._name), flags, 0o600)
        try:
            process = subprocess.Popen(
                # -P: a file of the working folder must not pass for a module of the library.
                [sys.executable, "-P", "-m", "feedline._host", self._name, str(lock)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            raise FeedlineError(
                f'the server of feed "{self._name}" cannot be started: {error}'
            ) from error
        finally:
            os.close(log)
        # It reads all and leaves a child behind, which is the server and nobody's child.
        process.communicate(payload)

    def _say_so(self) -> None:
        if not self._said and _starting.now() - self._since > _SAY_SO_AFTER_SECS:
            self._said = True
            _log.warning(
                'the server of feed "%s" is still being started\n  what it printed: %s',
                self._name,
                log_path(self._name),
            )

    def compare(self, server_pid: int) -> None:
        """Say so if the server runs with other options than these, or with another loader."""
        running = _starting.record_of(self._name)
        for asked, there, what in (
            (_text(self._options), running.options, "started with"),
            (self._source, running.source, "with the loader of"),
        ):
            if there and asked and there != asked:
                # What both have is no news.
                ours, theirs = asked.split("\n"), there.split("\n")
                _log.warning(
                    'feed "%s" runs already (pid %d), %s %s\n'
                    "  what was asked for here does not count: %s\n"
                    "  it can, once that server has gone: feedline stop %s",
                    self._name,
                    server_pid,
                    what,
                    ", ".join(one for one in theirs if one not in ours) or "less",
                    ", ".join(one for one in ours if one not in theirs) or "less",
                    self._name,
                )


def _environment() -> dict[str, str]:
    ours = {
        key: value
        for key, value in os.environ.items()
        if key not in _OF_RANKS and not key.startswith(_OF_LAUNCHERS)
    }
    return {**ours, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def _source(make_loader: Callable[[], Any]) -> str:
    """Where the loader is made, when that was written, and the plain values that it refers to.

    A line each; empty where there is no file.
    """
    function = inspect.unwrap(make_loader)
    try:
        path = os.path.realpath(inspect.getsourcefile(function) or "")
        changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(os.stat(path).st_mtime))
        # A name that has no value yet is a ValueError too.
        refers = inspect.getclosurevars(function) if inspect.isfunction(function) else None
    except (OSError, TypeError, ValueError):
        return ""
    if refers is None:
        return f"{path} of {changed}"
    known = {**refers.globals, **refers.nonlocals}
    plain = {
        key: value
        for key, value in known.items()
        if isinstance(value, str | int | float | None) and len(repr(value)) <= _LONGEST_VALUE
    }
    place = f"{path}, line {function.__code__.co_firstlineno}, of {changed}"
    return f"{place}\n{_text(plain)}".strip()


def _text(options: dict[str, Any]) -> str:
    """A line each."""
    return "\n".join(f"{key}={options[key]!r}" for key in sorted(options))


__all__ = ["share"]
