"""Starts the server of shared feeds while nobody serves them."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from feedline import _start_record
from feedline._core import feeds, folder_path
from feedline._errors import FeedEndedError, FeedlineError, FeedMismatchError
from feedline._mismatch import Description, Mismatch, compare, is_same
from feedline._pickling import pack, script_context
from feedline._shard import is_of_a_rank
from feedline._start_record import Record, log_path

_log = logging.getLogger("feedline")

# A server that dies this often while it makes its loader, or before, will die again.
_MOST_CRASHES = 3
_MOST_ATTEMPTS = 10
_SAY_SO_AFTER_SECS = 30.0
_LARGE_BYTES = 500_000_000
# The feeds of one server end together; it takes a moment until the last one has.
_END_SECS = 5.0


class Starter:
    """Starts the server of some feeds while nobody serves them.

    Never waits; called again and again. The feeds have one process, one lock and one log, under the
    name that they have in common; a single feed's is its own.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Any]],
        name: str,
        options: Mapping[str, dict[str, Any]],
        description: Description,
        mismatch: Mismatch,
    ) -> None:
        """Remember what to start: a function for each feed, and how to serve it."""
        self._makers: Mapping[str, Callable[[], Any]] | None = makers
        self._name = name
        self._options = options
        self._description = description
        self._mismatch = mismatch
        self._packed: bytes | None = None
        self._is_retired = False
        self._compared = 0
        self._since = _start_record.now()
        self._said = False
        # Since when some of the feeds exist and others don't.
        self._apart_since: float | None = None

    def __call__(self) -> None:
        """Start the server, unless somebody is at it; raise why it can't be."""
        if self._is_retired:
            return  # the processes whose loader it is start it
        owner = _start_record.other_owner()
        if owner is not None:
            raise FeedlineError(
                f'nobody serves feed "{self._name}", and only user {owner} can start it in '
                f"{folder_path()}, a folder of that user's\n"
                "  start this job while that user's run, or within their linger_secs\n"
                "  for a feed of your own: set FEEDLINE_DIR to a folder of yours"
            )
        lock = _start_record.try_lock(self._name)
        if lock is None:
            self._say_so()
            return
        with lock:
            before = _start_record.read(lock)
            record = replace(before)
            if self._is_served(record):
                return
            if record.failed > self._since:
                raise _start_record.failure(record)
            # What a server printed before it died is worth keeping.
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
            record.began, record.attempts = _start_record.now(), record.attempts + 1
            self._description.put_into(record)
            # The earlier runs go on if their server was started with the same loaders.
            record.runs = before.runs if is_same(self._description, before) else {}
            _start_record.write(lock, record, self._name)
            self._start(lock.fileno(), payload, append=goes_on)

    def _is_served(self, record: Record) -> bool:
        """Whether the feeds are there, or must be waited for; raise if they can't be had."""
        running = {name: pid for name, pid, _ in feeds()}
        there = [feed for feed in self._options if feed in running]
        if len(there) == len(self._options):
            return True
        others = [feed for feed in record.options if feed in running]
        if not there and not others:
            self._apart_since = None
            return False
        missing = [feed for feed in self._options if feed not in running]
        if any(feed not in record.options for feed in missing) and others:
            raise FeedMismatchError(
                f'"{self._name}" (pid {running[others[0]]}) serves {", ".join(record.options)}, '
                f"and not {', '.join(missing)}\n"
                "  give them another name, or stop that server first: "
                f"feedline stop {others[0]}"
            )
        # They end together, or one has had all its epochs and the others have not.
        self._apart_since = self._apart_since or _start_record.now()
        if _start_record.now() - self._apart_since > _END_SECS:
            rest = (there or others)[0]
            raise FeedEndedError(
                f"all epochs of {', '.join(missing)} are over, and the same server "
                f"(pid {running[rest]}) still serves {rest}\n"
                f"  start again when its jobs have left it, or: feedline stop {rest}"
            )
        return True

    def _pack(self) -> bytes:
        if self._packed is None:
            assert self._makers is not None, "settle() packs before it forgets them"
            self._packed = pack(self._makers, self._description.module_state)
        return self._packed

    def _payload(self) -> bytes:
        payload = self._pack()
        host = {"options": dict(self._options), "around": script_context(), "bytes": len(payload)}
        return pickle.dumps(host) + payload

    def _start(self, lock: int, payload: bytes, *, append: bool) -> None:
        log = _start_record.open_log(self._name, append=append)
        try:
            process = subprocess.Popen(
                # -P: a file in the working directory must not hide a module of the library.
                [sys.executable, "-P", "-m", "feedline._share_server", self._name, str(lock)],
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
        # It reads everything and leaves a child behind, which is the server, and a child of nobody.
        process.communicate(payload)

    def _say_so(self) -> None:
        if not self._said and _start_record.now() - self._since > _SAY_SO_AFTER_SECS:
            self._said = True
            _log.warning(
                'the server of feed "%s" is still being started\n  what it printed: %s',
                self._name,
                log_path(self._name),
            )

    def compare(self, server_pid: int) -> None:
        """Raise or warn if that server has another loader than ours, or serves it otherwise."""
        self._compared = server_pid
        owner = _start_record.other_owner()
        if owner is not None:
            self._is_retired = True
            _log.info(
                'feed "%s" is user %s\'s: its loader is not compared with the one given here',
                self._name,
                owner,
            )
            return
        running = {feed: _start_record.record_of(feed) for feed in self._options}
        if not compare(self._name, self._description, running, server_pid, self._mismatch):
            self._is_retired = True

    def compare_again(self, server_pid: int) -> None:
        """The same for a server that came in the place of the one that was compared."""
        if server_pid != self._compared:
            self.compare(server_pid)

    def settle(self, *, may_reconnect: bool) -> None:
        """Keep what it takes to start the server again, and nothing else, from now on.

        What ``make_loader`` refers to may be set anew as soon as ``share`` has returned.
        """
        if may_reconnect and not self._is_retired:
            self._pack()
        else:
            self._is_retired, self._packed = True, None
        self._makers = None
        self._description.module_state.clear()


def _environment() -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not is_of_a_rank(key)}
    return {**ours, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
