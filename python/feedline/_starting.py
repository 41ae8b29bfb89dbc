"""Starting a feed's server exactly once, whoever asks for it and whoever dies meanwhile.

```text
             flock on NAME.share
 nobody serves ──▶ got it ──▶ start the server, hand it the lock ──▶ it serves, and lets go
      ▲             └ the record tells of a failure since we asked: raise it
      └── not got: somebody is at it; look again in a moment
```

The lock is the server's from its first moment on: it goes with the process, so a server that is
killed half-way leaves nothing, and one whose starter is killed is still the only one. The record in
the locked file tells those who waited why a start failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from feedline._core import folder

# The feed that this process is the server of, or is about to be.
hosted: str | None = None


@dataclass
class Record:
    """The last start: when, the how manieth in a row, of what, and how it failed.

    A crash is a start that died while it made the loader.
    """

    began: float = 0.0
    attempts: int = 0
    crashes: int = 0
    options: str = ""
    source: str = ""
    failed: float = 0.0
    message: str = ""


def now() -> float:
    """A clock that all processes of a machine share, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lock_path(name: str) -> Path:
    return folder() / f"{name}.share"


def log_path(name: str) -> Path:
    """What the server of a shared feed prints."""
    return folder() / f"{name}.log"


def dice_path(name: str) -> Path:
    """What a server that is killed leaves to the next one."""
    return folder() / f"{name}.dice"


def try_lock(name: str) -> IO[str] | None:
    """The open file that is the lock, or None while somebody has it. Closing it lets go."""
    path = lock_path(name)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one before us may have removed the file that we have just locked.
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def read(file: IO[str]) -> Record:
    """The record; an empty one if there is none, or it was cut short."""
    file.seek(0)
    try:
        return Record(**json.loads(file.read()))
    except (ValueError, TypeError):
        return Record()


def write(file: IO[str], record: Record) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(asdict(record)))
    file.flush()


def record_of(name: str) -> Record:
    """What the server that runs was started with, as far as it was started by ``share``."""
    with contextlib.suppress(OSError), open(lock_path(name)) as file:
        return read(file)
    return Record()


@contextlib.contextmanager
def locked(name: str) -> Iterator[IO[str]]:
    """The lock, waited for."""
    while (file := try_lock(name)) is None:
        time.sleep(0.01)
    with file:
        yield file
