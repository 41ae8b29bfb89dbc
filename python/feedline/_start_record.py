"""The lock and the record of a server's start: once only, whichever process dies meanwhile.

```text
             flock on NAME.share
 nobody serves ──▶ got it ──▶ start the server, hand it the lock ──▶ it serves, and lets go
      ▲             └ the record tells of a failure since we asked: raise it
      └── not got: another process is starting it; try again in a moment
```

The lock is the server's from its first moment on: it goes with the process, so a server that is
killed half-way leaves nothing, and one whose starter is killed is still the only one. The record in
the locked file tells those who waited why a start failed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import pwd
import time
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from feedline import _errors
from feedline._core import folder, folder_path
from feedline._errors import FeedlineError, loader_error

_log = logging.getLogger("feedline")

# Writing a record takes no time; a record that stays half-written belongs to nobody.
_MOST_LOOKS = 200
# The feed that this process is the server of, or is about to be.
serving: str | None = None


@dataclass
class Record:
    """The last start: when, how many there were in a row, of what, and how it failed.

    A crash is a start that died while it made the loader.
    """

    began: float = 0.0
    attempts: int = 0
    crashes: int = 0
    # Whether the server was made, and has the feed's name or is about to take it.
    serves: bool = False
    # What the loader of each feed is known by (see `_mismatch`), and how it is served.
    identity: dict[str, list[list[Any]]] = field(default_factory=dict)
    key: str = ""
    options: dict[str, str] = field(default_factory=dict)
    failed: float = 0.0
    message: str = ""
    # The class of the error that it failed with: one of ours, or, for a LoaderError, the loader's.
    kind: str = ""
    # The run of each feed's server; until a server has taken it up, the run to go on with if a
    # consumer of it is left.
    runs: dict[str, int] = field(default_factory=dict)

    def started(self) -> Record:
        """What is worth keeping once the server serves."""
        kept = {key: getattr(self, key) for key in ("identity", "key", "options", "runs")}
        return Record(now(), serves=True, **kept)


def failure(record: Record) -> FeedlineError:
    """The error that a start failed with, as its server raised it."""
    ours = getattr(_errors, record.kind, None)
    if isinstance(ours, type) and issubclass(ours, FeedlineError):
        return ours(record.message)
    return loader_error(record.message, record.kind)


def now() -> float:
    """A clock that all processes of a machine share, and that cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lock_path(name: str) -> Path:
    return folder_path() / f"{name}.share"


def other_owner() -> str | None:
    """The folder's owner, if that is another user: only that user can start servers in it."""
    try:
        uid = os.stat(folder_path()).st_uid
    except OSError:
        return None
    if uid == os.getuid():
        return None
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def log_path(name: str) -> Path:
    """What the server of a shared feed prints."""
    return folder_path() / f"{name}.log"


def open_log(name: str, *, append: bool) -> int:
    """Open the log for a server. The process that writes to it owns it (``names::sweep``)."""
    path = log_path(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
    with _explained(path):
        descriptor = os.open(path, flags, 0o600)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what to do about a file in the folder that can't be written."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full:
            way_out = "free some space there, or set FEEDLINE_DIR to a folder on another disk"
        else:
            way_out = "set FEEDLINE_DIR to a folder of your own"
        raise FeedlineError(
            f"cannot write {path}: {error.strerror or error}\n  {way_out}"
        ) from error


_locks: weakref.WeakSet[IO[str]] = weakref.WeakSet()


def _close_locks() -> None:
    for file in list(_locks):
        file.close()


# A child that is forked while another thread has a lock would keep it for as long as it lives.
os.register_at_fork(after_in_child=_close_locks)


def try_lock(name: str) -> IO[str] | None:
    """The open file that is the lock, or None while somebody has it. Closing it lets go."""
    folder()
    path = lock_path(name)
    with _explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+")
    _locks.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the file that we have just locked.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def read(file: IO[str]) -> Record:
    """The record; an empty one if there is none, or it was cut short."""
    return _parsed(_content(file.fileno())) or Record()


def _content(descriptor: int) -> bytes:
    """All of a file, from wherever the descriptor stands."""
    parts, length = [], 0
    while part := os.pread(descriptor, 1 << 20, length):
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def write(file: IO[str], record: Record, name: str) -> None:
    """Put the record in the place of the one before, in the space that that one had.

    A process that reads it meanwhile finds a wrong checksum, and tries again.
    """
    text = json.dumps(asdict(record)).encode()
    text = f"{zlib.crc32(text):08x}\n".encode() + text
    # Not through the file's buffer, which would be written again when the file is closed.
    with _explained(lock_path(name)):
        written = 0
        while written < len(text):
            written += os.pwrite(file.fileno(), text[written:], written)
        os.ftruncate(file.fileno(), len(text))


def note(lock: int, record: Record, name: str) -> None:
    """Do the same in the server, which goes on without."""
    with open(lock, "r+", closefd=False) as file:
        try:
            write(file, record, name)
        except FeedlineError as error:
            _log.warning("%s", error)


def _parsed(text: bytes) -> Record | None:
    """None while it is being written."""
    total, _, rest = text.partition(b"\n")
    if total.decode(errors="replace") != f"{zlib.crc32(rest):08x}":
        return None
    try:
        return Record(**json.loads(rest))
    except (ValueError, TypeError):
        return None


def record_of(feed: str) -> Record | None:
    """What the server of a feed was started with; an empty one if not by ``share``.

    None if there is one that can't be read: then nothing is known of that server. A feed that was
    shared together with others is in the record of the name that they have in common.
    """
    for name in _names_of(feed):
        record = _read_by_name(name)
        if record is None or (record.serves and feed in record.options):
            return record
    return Record()


def _names_of(feed: str) -> list[str]:
    """The names that a feed's server may have been started under: "a.b.c", "a.b", "a"."""
    parts = feed.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _read_by_name(name: str) -> Record | None:
    try:
        with open(lock_path(name), "rb") as file:
            for _ in range(_MOST_LOOKS):
                text = _content(file.fileno())
                record = _parsed(text) if text else Record()
                if record is not None:
                    return record
                time.sleep(0.01)
    except FileNotFoundError:
        return Record()
    except OSError:
        return None
    return None


def forget(feed: str) -> None:
    """Remove what a server of that feed left that was killed: another one has the name now."""
    for name in _names_of(feed):
        if not os.path.exists(lock_path(name)):
            continue
        file = try_lock(name)
        if file is None:
            continue
        with file, contextlib.suppress(OSError):
            if name == feed or feed in read(file).options:
                os.unlink(lock_path(name))


@contextlib.contextmanager
def locked(name: str) -> Iterator[IO[str]]:
    """The lock, waited for."""
    while (file := try_lock(name)) is None:
        time.sleep(0.01)
    with file:
        yield file
