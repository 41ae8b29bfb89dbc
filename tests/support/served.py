"""What the tests of ``feedline serve`` name: functions that make loaders, good ones and others."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from support.loaders import Numbered, Resumable

NOT_A_LOADER = 5
READY = Numbered(40, 10)


def numbered(samples: int = 40, batch_size: int = 10, *, shout: bool = False) -> Numbered:
    return Numbered(samples, batch_size)


def needs(split: str, workers: int = 4) -> Numbered:
    return Numbered(workers, 1)


def generated(batches: int = 3) -> Iterator[Any]:
    for _ in range(batches):
        yield np.arange(8)


def failing(batches: int = 2) -> Iterator[Any]:
    yield from generated(batches)
    raise ValueError("sample 16 is broken")


def failing_when_told(batches: int = 2) -> Iterator[Any]:
    yield from generated(batches)
    while not os.path.exists(os.path.join(os.environ["FEEDLINE_DIR"], "on")):
        time.sleep(0.02)  # pause: polls
    raise ValueError("sample 16 is broken")


def raises() -> Any:
    raise FileNotFoundError("no such split: tset")


def gives_nothing() -> None:
    pass


def gives_a_number() -> int:
    return 7


class Hanging:
    """Yields once, and then sleeps; or sleeps again whatever wakes it."""

    def __init__(self, is_deaf: bool) -> None:
        self._is_deaf = is_deaf

    def __iter__(self) -> Iterator[Any]:
        yield np.arange(8)
        while True:
            try:
                print("hanging", file=sys.stderr, flush=True)
                time.sleep(3600)  # pause: hangs on purpose
            except BaseException:
                if not self._is_deaf:
                    raise


def hanging(is_deaf: bool = False) -> Hanging:
    return Hanging(is_deaf)


class Slow:
    """A map-style dataset whose class a worker has to import."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002)  # pause: slow on purpose
        return index


def forking() -> Any:
    """By which signals children end that are sent some."""
    ended = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        ready, say_so = os.pipe()
        pid = os.fork()
        if pid == 0:
            # A KeyboardInterrupt would go up through the server's frames.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.write(say_so, b"!")
            signal.pause()
        os.read(ready, 1)
        os.close(ready)
        os.close(say_so)
        os.kill(pid, number)
        ended.append(os.WTERMSIG(os.waitpid(pid, 0)[1]))
    yield [np.array(ended)]


def workers(context: str = "fork") -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(Slow(), batch_size=8, num_workers=2, multiprocessing_context=context)  # type: ignore[arg-type]


def resumable(samples: int = 400) -> Resumable:
    return Resumable(samples, 10)
