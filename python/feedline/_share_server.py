"""The process that serves shared feeds: ``python -m feedline._share_server NAME LOCK``.

``share`` starts it. It reads what to serve from its standard input, and inherits the lock that says
that it is being started; it releases the lock once it has the feed's name. An earlier error goes
into the record, for those who wait; consumers get a later error from the feed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from feedline import _rng_state, _start_record
from feedline._core import ServerCore, begin_run, end_run, feeds, folder
from feedline._errors import FeedlineError, LoaderError
from feedline._loader import made_by, seed_of_run
from feedline._log_output import print_without_raising
from feedline._pickling import enter_script_context, unpack
from feedline._rng_state import RngStates
from feedline._seeding import give_own_generator, seed_before_making
from feedline._server import Server
from feedline._start_record import Record, log_path

# The starter waits for us without a pause, but the machine may be busy.
_FIRST_CONSUMER_SECS = 5.0
# How long the folder's lock is waited for at the end.
_TIDY_SECS = 2.0
# How long a loader may go on after the feed's end.
_LAST_BATCH_SECS = 5.0


def main() -> None:
    """Detach from the process that started us, and serve."""
    name, lock = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(lock, False)
    _start_record.serving = name
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    faulthandler.enable()
    try:
        host: dict[str, Any] = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):
        return
    host["make_loader"] = sys.stdin.buffer.read()
    if len(host["make_loader"]) < host["bytes"]:
        return  # the starter was killed before it had sent all
    if os.fork() > 0:
        os._exit(0)
    # Children of the loader must not hold the lock when we are gone.
    os.register_at_fork(after_in_child=_Closing(lock))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    print_without_raising()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    if sys.version_info >= (3, 14):
        multiprocessing.set_start_method("fork")
    enter_script_context(host["around"])
    serving = _begin(name, lock, host)
    threading.Thread(target=_end_with, args=(serving,), daemon=True).start()
    # The first loader runs in the main thread, as in a script.
    others = [threading.Thread(target=_serve, args=(name, one, serving)) for one in serving[1:]]
    for thread in others:
        thread.start()
    _serve(name, serving[0], serving)
    for thread in others:
        thread.join()
    for one in serving:
        if one.error is not None:
            raise one.error
    _tidy(name, [one.feed for one in serving])


class _Closing:
    """Closes a descriptor in a child, and not again in that one's children.

    The number may be another file's there.
    """

    def __init__(self, descriptor: int) -> None:
        self._open: list[int] = [descriptor]

    def __call__(self) -> None:
        while self._open:
            os.close(self._open.pop())


@dataclass
class _Serving:
    """One of the feeds of this process."""

    feed: str
    server: Server
    core: ServerCore
    error: BaseException | None = None


def _serve(name: str, one: _Serving, serving: list[_Serving]) -> None:
    """Serve a feed to its end. Unless that is where its epochs end, it ends the others too."""
    others = [other for other in serving if other is not one]
    try:
        one.server._run(one.core)
        why = f'feed "{one.feed}", which the same server has, was stopped'
        has_ended = one.core.stats()["state"] == "ended"
    except BaseException as error:
        why = f'feed "{one.feed}", which the same server has, failed'
        has_ended = False
        if not any(other.error for other in others):
            one.error = error
            is_ours = isinstance(error, FeedlineError)
            text = str(error) if is_ours else _traceback("the loader raised", error)
            # Before the name is free: a consumer that comes then gets the error.
            with contextlib.suppress(FeedlineError), _start_record.locked(name) as file:
                _leave_word(file.fileno(), text, name, _kind(error))
                for each in serving:
                    end_run(each.feed)
    finally:
        one.server.stop()
    if not has_ended:
        for other in others:
            other.core.stop(why)


def _begin(name: str, lock: int, host: dict[str, Any]) -> list[_Serving]:
    """Make the loaders, take the feeds' names, and let go of the lock."""
    with open(lock, "r+", closefd=False) as file:
        record = _start_record.read(file)
    record.crashes += 1
    _start_record.note(lock, record, name)
    options: dict[str, dict[str, Any]] = host["options"]
    with _leaving_word(lock, f'make_loader of feed "{name}" raised', name):
        makers: dict[str, Callable[[], Any]] = unpack(host.pop("make_loader"))
    loaders = _made(makers, lock, name, options)
    serving: list[_Serving] = []
    try:
        servers = {feed: Server(loader, feed, **options[feed]) for feed, loader in loaders.items()}
        rng_states: dict[str, _rng_state.States] = {}
        for feed in servers:
            is_seeded = options[feed].get("seed") is not None
            record.runs[feed], rng_states[feed] = _run(feed, record.runs.get(feed), is_seeded)
            if hasattr(loaders[feed], "seed_by_default"):
                loaders[feed].seed_by_default(seed_of_run(record.runs[feed]))
        # Before anybody can attach: each consumer compares.
        _start_record.note(lock, record.started(), name)
        for feed, server in servers.items():
            linger_secs = options[feed]["linger_secs"]
            if linger_secs is not None:
                server._launch["first_consumer_secs"] = max(_FIRST_CONSUMER_SECS, linger_secs)
            server._launch["run"] = record.runs[feed]
            core = server._bind(beside=serving[0].core if serving else None)
            if options[feed].get("seed") is None:
                path = _rng_state.path_of(feed, record.runs[feed])
                states = RngStates(path, loaders[feed], rng_states[feed], _slowest_of(core))
                server._before_epoch = states.begin
            serving.append(_Serving(feed, server, core))
    except Exception as error:
        for one in serving:
            one.server.stop()
        # Somebody serves the name by hand: then that feed counts.
        if any(one in options for one, _, _ in feeds()):
            _start_record.note(lock, Record(), name)
        else:
            _leave_word(lock, str(error), name, _kind(error))
        raise

    def stop(*_: Any) -> None:
        for one in serving:
            one.core.stop(f"its server (pid {os.getpid()}) was told to stop")

    signal.signal(signal.SIGTERM, stop)
    fcntl.flock(lock, fcntl.LOCK_UN)
    return serving


def _run(feed: str, before: int | None, is_seeded: bool) -> tuple[int, _rng_state.States]:
    """Return the run that we belong to, and the states of its generators, if it goes on.

    With a seed the order is the same without them.
    """
    states = None if before is None else _rng_state.load(_rng_state.path_of(feed, before))
    run, problem = begin_run(feed, before if states or is_seeded else None)
    if problem is not None:
        logging.getLogger("feedline").warning(
            "%s: %s\n  the feed goes on; should its server be killed, nobody can come back to it",
            folder(),
            problem,
        )
    return run, (states or {}) if run == before else {}


def _slowest_of(core: ServerCore) -> Callable[[], int | None]:
    def slowest_epoch() -> int | None:
        consumers = core.stats()["consumers"]
        return min((one["epoch"] for one in consumers if one["joined"]), default=None)

    return slowest_epoch


def _made(
    makers: dict[str, Callable[[], Any]], lock: int, name: str, options: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Make the loaders, one after the other."""
    loaders = {}
    for feed, make_loader in makers.items():
        with _leaving_word(lock, f'make_loader of feed "{feed}" raised', name):
            seed_before_making(options[feed].get("seed"))
            loaders[feed] = made_by(make_loader)
    if len(loaders) > 1:
        # They are iterated side by side: what one draws must not change what another draws.
        for loader in loaders.values():
            give_own_generator(loader)
    return loaders


def _traceback(what: str, error: BaseException) -> str:
    """What was raised, without the frames of ours that it was raised through."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__package__") == "feedline":
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return f"{what} {error!r}\n\n{''.join(lines).rstrip()}"


@contextlib.contextmanager
def _leaving_word(lock: int, what: str, name: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _leave_word(lock, _traceback(what, error), name, _class_name(error))
        raise


def _leave_word(lock: int, text: str, name: str, kind: str) -> None:
    message = f"{text}\n  what its server printed: {log_path(name)}"
    with open(lock, "r+", closefd=False) as file:
        record = _start_record.read(file)
    # Nobody resumes a run that has failed.
    record.runs = {}
    record.failed, record.message, record.kind = _start_record.now(), message, kind
    _start_record.note(lock, record, name)


def _kind(error: BaseException) -> str:
    """The class of what a server failed with, as ``Record.kind`` has it."""
    if isinstance(error, LoaderError) and error.__cause__ is not None:
        return _class_name(error.__cause__)
    return type(error).__name__ if isinstance(error, FeedlineError) else _class_name(error)


def _class_name(error: BaseException) -> str:
    return f"{type(error).__module__}:{type(error).__qualname__}"


def _end_with(serving: list[_Serving]) -> None:
    """End the process, and its workers, after the feeds, even if a loader hangs."""
    while any(one.core.stats()["state"] in ("starting", "running") for one in serving):
        time.sleep(0.5)
    time.sleep(_LAST_BATCH_SECS)
    logging.getLogger("feedline").warning("the loader goes on after the feed's end: killed")
    # We lead a session of our own, with nothing in it but us and what the loader started.
    os.killpg(0, signal.SIGKILL)


def _tidy(name: str, served: list[str]) -> None:
    """Keep only what was printed, and its record, after a successful end."""
    # A process that sweeps the folder has the lock for a moment, and leaves our files to us because
    # we still have our log; a process that starts the next server has it for longer.
    deadline = time.monotonic() + _TIDY_SECS
    while (file := _start_record.try_lock(name)) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    with file:
        if any(feed in served for feed, _, _ in feeds()):
            return  # another server, which was started meanwhile
        for feed in served:
            end_run(feed)
        with contextlib.suppress(OSError):
            if os.stat(log_path(name)).st_size == 0:
                os.unlink(log_path(name))
                os.unlink(_start_record.lock_path(name))


if __name__ == "__main__":
    main()
