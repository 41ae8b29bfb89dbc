"""What is raised, printed and refused where a loader is shared."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import say
from support.share_scripts import SAMPLES, ids, numbers

LOCK = threading.Lock()

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]


def test_ctrl_c_in_mid_epoch_loses_nothing(tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"

    def paced() -> Iterator[Any]:
        yield np.arange(4)
        while not go_on.exists():
            time.sleep(0.02)  # pause: polls
        yield np.arange(4, 12)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with feedline.share(paced, "train", batch_size=4, linger_secs=0.1) as feed:
        batches = iter(feed)
        found = [int(i) for i in next(batches)]
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come before the wait
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                found += [int(i) for i in next(batches)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        go_on.touch()
        found += [int(i) for batch in batches for i in batch]
        assert found == list(range(12))


class NoSuchDataError(Exception):
    pass


def fail() -> list[Any]:
    print("before it fails")
    time.sleep(0.5)  # pause: slow on purpose
    raise NoSuchDataError("the disk is not mounted")


def share_what_fails() -> None:
    feedline.share(fail, "train", linger_secs=0.1)


def test_what_make_loader_raises_is_raised_by_all(start: Start, folder: Path) -> None:
    jobs = [start(share_what_fails) for _ in range(3)]
    for job in jobs:
        job.expect_error(
            feedline.LoaderError,
            "NoSuchDataError('the disk is not mounted')",
            'raise NoSuchDataError("the disk is not mounted")',
            str(folder / "train.log"),
        )
    assert "before it fails" in (folder / "train.log").read_text()
    # And once it is repaired, all is well again.
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1) as feed:
        assert ids(feed) == list(range(SAMPLES))


def fails_late() -> Iterator[Any]:
    yield from numbers()
    raise NoSuchDataError("sample 60 is broken")


def read_what_fails() -> None:
    options: dict[str, Any] = {"batch_size": 7, "ring": 24, "wait_for": 2, "linger_secs": 0.1}
    feed = feedline.share(fails_late, "train", **options)
    found = []
    try:
        for batch in feed:
            found += [int(i) for i in batch]
    finally:
        say("read", ids=found)


def test_what_the_loader_raises_is_raised_by_all(start: Start, folder: Path) -> None:
    jobs = [start(read_what_fails) for _ in range(2)]
    for job in jobs:
        assert job.expect("read")["ids"] == list(range(56))  # the next batch is not whole
        job.expect_error(
            feedline.LoaderError, "sample 60 is broken", "fails_late", str(folder / "train.log")
        )


def test_a_loader_that_takes_too_long(folder: Path, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"

    def slowly() -> list[Any]:
        while not go_on.exists():
            time.sleep(0.02)  # pause: polls
        return numbers()

    with pytest.raises(feedline.StalledError) as raised:
        feedline.share(slowly, "train", timeout_secs=0.5, linger_secs=0.1)
    go_on.touch()
    assert "make_loader has not returned" in str(raised.value)
    assert str(folder / "train.log") in str(raised.value)


@pytest.mark.parametrize("prints", [False, True])
def test_an_error_names_the_log_of_a_server_that_has_printed(prints: bool, folder: Path) -> None:
    def endless() -> Iterator[Any]:
        if prints:
            print("loading", flush=True)
        while True:
            yield np.arange(4)

    with feedline.share(endless, "train", join="now") as feed:
        batches = iter(feed)
        next(batches)
        command = [sys.executable, "-m", "feedline", "stop", "train"]
        subprocess.run(command, check=True, timeout=60)
        with pytest.raises(feedline.ServerLostError, match="was stopped") as raised:
            for _ in batches:
                pass
    log = folder / "train.log"
    assert (str(log) in str(raised.value)) == prints
    if prints:
        assert log.read_text() == "loading\n"


def test_a_server_that_dies_again_and_again(folder: Path) -> None:
    with pytest.raises(feedline.FeedlineError, match="died 3 times") as raised:
        feedline.share(lambda: os._exit(3), "train")
    assert str(folder / "train.log") in str(raised.value)


def test_a_server_that_crashes_says_where(folder: Path) -> None:
    with pytest.raises(feedline.FeedlineError, match="died 3 times"):
        feedline.share(lambda: ctypes.string_at(0), "train")
    assert "Segmentation fault" in (folder / "train.log").read_text()


def test_a_module_that_shares_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import feedline, numpy as np\ndef make_loader():\n    return [np.arange(4)]\n"
        "feed = feedline.share(make_loader, 'train', linger_secs=0.1)\n"
    )
    command = [sys.executable, "-c", "import module"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "was called in the server's own process" in done.stderr
    assert "put it into a function" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([1, 2], "train"), TypeError, "inner = loader; share(lambda: inner, "),
        ((numbers, None), TypeError, "a feed's name is a str, not None"),
        (("train", numbers), TypeError, "the function comes first"),
        ((numbers, "a/b"), feedline.FeedValueError, "a feed cannot be named"),
        ((lambda: [LOCK], "train"), feedline.FeedValueError, "make_loader"),
        ((lambda: 5, "train"), feedline.LoaderError, "int is not iterable"),
        ((lambda: sys.exit("no"), "train"), feedline.LoaderError, "SystemExit"),
    ],
)
def test_what_cannot_be_shared(
    arguments: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised:
        feedline.share(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"histroy": 1.0}, TypeError, "unexpected keyword argument 'histroy'"),
        ({"lag": "never"}, feedline.FeedValueError, "lag='never' is not one of \"block\""),
        ({"linger_secs": -1}, feedline.FeedValueError, "linger_secs=-1 is not a time to wait"),
        ({"batch_size": 0}, feedline.BatchSizeError, "batch_size=0"),
        ({"_when_missing": print}, TypeError, "unexpected keyword"),
        ({"mismatch": "ignore"}, feedline.FeedValueError, "mismatch='ignore' is not one of"),
        ({"key": object}, feedline.FeedValueError, "is not a plain value"),
    ],
)
def test_bad_options_start_nothing(
    options: dict[str, Any], kind: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(kind) as raised:
        feedline.share(numbers, "train", **options)
    assert message in str(raised.value)
    assert not list(folder.iterdir())
