"""Loaders that hang until they are released, their servers and consumers, and what those log."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.loaders import Batch, Numbered, NumberedDataset
from support.processes import Child, Report
from support.reading import expected, read
from support.waiting import eventually

SAMPLES, BATCH, AT = 60, 10, 30


# --- roles ----------------------------------------------------------------------------------------


def wait_in_python(release: Path) -> None:
    while not release.exists():
        time.sleep(0.02)  # pause: polls


def wait_for_a_lock(release: Path) -> None:
    lock = threading.Lock()
    lock.acquire()
    while not release.exists():
        lock.acquire(timeout=0.02)


def wait_with_the_gil(release: Path) -> None:
    """In native code that holds the GIL, until `release_the_gil`."""
    pipe = os.open(release.with_name("gil"), os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
    os.close(pipe)


class Hanging(Numbered):
    """Hangs before sample `AT` of its first epoch, or before the first, until a file is there."""

    def __init__(self, how: str, release: str, at: int, last: str | None = None) -> None:
        # Pages of samples, so that a small ring is small.
        super().__init__(SAMPLES, BATCH, width=4096)
        self.hang = globals()[how]
        self.release = Path(release)
        self.at = at
        # The last batch waits for this file.
        self.last = None if last is None else Path(last)

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        for batch in super()._epoch(epoch):
            if batch[1][0] == self.at:
                self.release.with_name("hangs").touch()
                self.hang(self.release)
            if batch[1][-1] == SAMPLES - 1 and self.last is not None:
                wait_in_python(self.last)
            yield batch


class Awaited:
    """Begins once somebody waits for its first batch."""

    server: feedline.Server

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        eventually(lambda: bool(self.server.stats()["consumers"]))
        return iter(self.loader)


class HangingDataset(NumberedDataset):
    """The same in a worker process, which leaves its pid."""

    def __init__(self, release: str) -> None:
        super().__init__(SAMPLES)
        self.release = Path(release)

    def __getitem__(self, index: int) -> Any:
        if index == AT:
            announced = self.release.with_name("worker.new")
            announced.write_text(str(os.getpid()))
            announced.rename(self.release.with_name("worker"))
            wait_in_python(self.release)
        return super().__getitem__(index)


def hanging_workers(release: str) -> Any:
    from torch.utils.data import DataLoader

    dataset: Any = HangingDataset(release)
    return DataLoader(dataset, batch_size=BATCH, num_workers=1)


class Loud(logging.Handler):
    """Reports what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", level=record.levelname, text=record.getMessage())


def be_loud() -> None:
    logger = logging.getLogger("feedline")
    logger.addHandler(Loud())
    logger.setLevel(logging.INFO)


def serve(
    release: str,
    how: str = "wait_in_python",
    at: int = AT,
    last: str | None = None,
    **options: Any,
) -> None:
    be_loud()
    loader = hanging_workers(release) if how == "worker" else Hanging(how, release, at, last)
    server = feedline.Server(loader, "train", epochs=1, **options)
    server.start()
    say("ready")

    def obey() -> None:
        while hear() == "stats":
            say("stats", stats=server.stats())
        server.stop()

    threading.Thread(target=obey, daemon=True).start()
    server.wait()
    say("done")


def serve_in_this_thread(release: str, **options: Any) -> None:
    feedline.serve(Hanging("wait_in_python", release, AT), "train", **options)


def consume(**options: Any) -> None:
    be_loud()
    feed = feedline.attach("train", batch_size=BATCH, **options)
    say("attached")
    say("epoch", **read(feed).as_json())


def come_early() -> None:
    """Attach before the feed exists."""
    say("checking")
    consume()


def take_then_leave(batches: int) -> None:
    """Leave by itself, in mid-epoch, when told."""
    feed = feedline.attach("train", batch_size=BATCH)
    iterator = iter(feed)
    say("took", **read(iterator, limit=batches).as_json())
    hear()
    feed.close()
    say("left")


def pause(batches: int) -> None:
    """Take some batches, do something else until told, and take the rest."""
    be_loud()
    feed = feedline.attach("train", batch_size=BATCH)
    iterator = iter(feed)
    say("took", **read(iterator, limit=batches).as_json())
    hear()
    say("rest", **read(iterator).as_json())


# --- hearing them ---------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Hands back the loader, once the file is there."""
    os.mkfifo(tmp_path / "gil")
    return tmp_path / "release"


def release_the_gil(release: Path) -> None:
    release.with_name("gil").write_bytes(b"!")


def after_logs(child: Child) -> Report:
    while (report := child.report())["event"] in ("log", "attached"):
        pass
    return report


def expect(child: Child, event: str) -> Report:
    report = after_logs(child)
    assert report["event"] == event, report
    return report


def logged(child: Child, *parts: str) -> str:
    """Wait for a line in the log of a child that has all these parts."""
    while (report := child.report())["event"] in ("log", "attached"):
        if all(part in report.get("text", "") for part in parts):
            return str(report["text"])
    raise AssertionError(f"{parts} came not before {report}")


def expect_stalled(child: Child, *parts: str) -> str:
    report = expect(child, "error")
    assert report["type"] == "StalledError", report["traceback"]
    for part in parts:
        assert part in report["message"], report["message"]
    return str(report["message"])


def expect_whole_epoch(child: Child) -> None:
    report = expect(child, "epoch")
    assert {key: report[key] for key in ("sizes", "keys", "exact")} == expected(
        0, SAMPLES, BATCH
    ).as_json()


def hanging_server(start: Start, release: Path, **options: Any) -> Child:
    server = start(serve, release=str(release), **options)
    server.expect("ready")
    return server


def after_asking(server: Child) -> Report:
    server.tell("stats")
    return dict(expect(server, "stats")["stats"])


def await_hang(release: Path) -> None:
    eventually(release.with_name("hangs").exists)
