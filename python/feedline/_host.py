"""The server's process of a shared feed: ``python -m feedline._host NAME LOCK``, by ``share``.

Gets what to serve on its standard input, and the lock that says that it is being started; lets go
of the lock once it has the feed's name. What goes wrong before is left in the record, for those who
wait; afterwards consumers hear of it from the feed.
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
from typing import Any

from feedline import _starting
from feedline._core import ServerCore, feeds
from feedline._dice import Dice
from feedline._errors import FeedlineError
from feedline._loader import made_by
from feedline._parcel import settle, unpack
from feedline._server import Server
from feedline._starting import Record, log_path

# Whoever started us looks for us all the time, but the machine may be busy.
_FIRST_CONSUMER_SECS = 5.0
# How long a loader may go on after the feed's end.
_LAST_BATCH_SECS = 5.0


def main() -> None:
    """Detach from whoever started us, and serve."""
    name, lock = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(lock, False)
    _starting.hosted = name
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
    os.register_at_fork(after_in_child=lambda: os.close(lock))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    if sys.version_info >= (3, 14):
        multiprocessing.set_start_method("fork")
    settle(host["around"])
    server, core = _begin(name, lock, host)
    try:
        server._run(core)
    except BaseException as error:
        is_ours = isinstance(error, FeedlineError)
        text = str(error) if is_ours else _traceback("the loader raised", error)
        with _starting.locked(name) as file:
            _starting.dice_path(name).unlink(missing_ok=True)
            _leave_word(file.fileno(), text, name)
        raise
    finally:
        server.stop()
    _tidy(name)


def _begin(name: str, lock: int, host: dict[str, Any]) -> tuple[Server, ServerCore]:
    """Make the loader, take the feed's name, and let go of the lock."""
    with open(lock, "r+", closefd=False) as file:
        record = _starting.read(file)
        record.crashes += 1
        _starting.write(file, record)
    try:
        loader = made_by(unpack(host.pop("make_loader")))
    except BaseException as error:
        _leave_word(lock, _traceback(f'make_loader of feed "{name}" raised', error), name)
        raise
    try:
        server = Server(loader, name, **host["options"])
        linger_secs = host["options"]["linger_secs"]
        if linger_secs is not None:
            server._options["first_consumer_secs"] = max(_FIRST_CONSUMER_SECS, linger_secs)
        server._before_epoch = Dice(_starting.dice_path(name), loader).begin
        core = server._bind()
    except Exception as error:
        # Somebody serves the name by hand: then that is the feed.
        if not any(one == name for one, _, _ in feeds()):
            _leave_word(lock, str(error), name)
        raise
    stop = f"its server (pid {os.getpid()}) was told to stop"
    signal.signal(signal.SIGTERM, lambda *_: core.stop(stop))
    threading.Thread(target=_end_with, args=(core,), daemon=True).start()
    with open(lock, "r+", closefd=False) as file:
        record = _starting.read(file)
        record = Record(_starting.now(), options=record.options, source=record.source)
        _starting.write(file, record)
    fcntl.flock(lock, fcntl.LOCK_UN)
    return server, core


def _traceback(what: str, error: BaseException) -> str:
    """What was raised, without the frames of ours that it was raised through."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__package__") == "feedline":
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return f"{what} {error!r}\n\n{''.join(lines).rstrip()}"


def _leave_word(lock: int, text: str, name: str) -> None:
    message = f"{text}\n  what its server printed: {log_path(name)}"
    with open(lock, "r+", closefd=False) as file:
        record = _starting.read(file)
        record.failed, record.message = _starting.now(), message
        _starting.write(file, record)


def _end_with(core: ServerCore) -> None:
    """See that a loader that hangs doesn't keep the process, and its workers, after the feed."""
    while core.stats()["state"] in ("starting", "running"):
        time.sleep(0.5)
    time.sleep(_LAST_BATCH_SECS)
    logging.getLogger("feedline").warning("the loader goes on after the feed's end: killed")
    # We lead a session of our own: there is nobody in it but us and what the loader started.
    os.killpg(0, signal.SIGKILL)


def _tidy(name: str) -> None:
    """After a good end only what was printed stays."""
    file = _starting.try_lock(name)
    if file is None:
        return
    with file:
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            if os.stat(log_path(name)).st_size == 0:
                os.unlink(log_path(name))
            _starting.dice_path(name).unlink(missing_ok=True)
            os.unlink(_starting.lock_path(name))


if __name__ == "__main__":
    main()
