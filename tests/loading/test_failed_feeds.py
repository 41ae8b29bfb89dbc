"""A feed that has failed: every consumer that attaches gets one and the same error."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from feedline._errors import loader_error
from support.child import hear, say
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]

# Never to be waited for: what has failed is known.
LONG_SECS = 100.0


class TooFewError(ValueError):
    """A loader's own; its constructor takes what no message of ours gives."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(f"{found} of {wanted}")


class OddError(Exception):
    """Does something when it is made, which nobody's message may cause."""

    def __new__(cls, *args: object) -> OddError:
        raise AssertionError("it was made")


def changes_its_structure() -> Iterator[Any]:
    yield np.arange(4)
    yield (np.arange(4),)


class Raises:
    """A loader that raises this in its first epoch."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __iter__(self) -> Iterator[Any]:
        raise self.error


class Unsized(Raises):
    """A loader that raises when it is asked for its sampler, to learn its length."""

    batch_size = 4

    def __iter__(self) -> Iterator[Any]:
        yield np.arange(4)

    @property
    def sampler(self) -> Any:
        raise self.error


def failed(loader: Any) -> feedline.Server:
    server = feedline.Server(loader, "train").start()
    eventually(lambda: server.stats()["state"] == "failed")
    return server


def test_who_attaches_afterwards_gets_the_error_itself() -> None:
    server = failed(changes_its_structure())
    for _ in range(3):
        with pytest.raises(feedline.SchemaError, match="changed the structure of its batches"):
            feedline.attach("train", timeout_secs=LONG_SECS)
    assert [info.name for info in feedline.feeds()] == ["train"]
    server.stop()
    assert feedline.feeds() == []
    with pytest.raises(feedline.FeedNotFoundError):
        feedline.attach("train", timeout_secs=0)


def test_a_server_whose_error_was_raised_by_wait_is_over() -> None:
    server = failed(changes_its_structure())
    with pytest.raises(feedline.SchemaError):
        server.wait()
    assert feedline.feeds() == []


def test_in_one_with_statement() -> None:
    for _ in range(12):
        with (
            pytest.raises(feedline.SchemaError),
            feedline.Server(changes_its_structure(), "train"),
            feedline.attach("train", timeout_secs=LONG_SECS) as feed,
        ):
            for _ in feed:
                pass


def test_another_server_of_this_process_takes_the_name() -> None:
    """As in a notebook, where the cell is run again while the first server is still there."""
    first = failed(Raises(ValueError("no such file")))
    with feedline.Server([np.arange(4)], "train"), feedline.attach("train") as feed:
        assert next(iter(feed)).tolist() == [0, 1, 2, 3]
    first.stop()


def fail_and_wait() -> None:
    server = failed(Raises(ValueError("no such file")))
    say("failed")
    hear()
    server.wait()


def test_another_process_is_told_and_can_stop_it(start: Start) -> None:
    server = start(fail_and_wait)
    server.expect("failed")
    with pytest.raises(ValueError, match="no such file"):
        feedline.attach("train", timeout_secs=LONG_SECS)
    listed = subprocess.run(
        [sys.executable, "-m", "feedline", "ls"], capture_output=True, text=True, check=True
    )
    assert "failed" in listed.stdout
    subprocess.run([sys.executable, "-m", "feedline", "stop", "train"], check=True)
    eventually(lambda: feedline.feeds() == [])
    assert server.running
    server.tell("go on")
    server.expect_error(feedline.LoaderError, "no such file")


@pytest.mark.parametrize("loader", [Raises, Unsized])
def test_it_is_caught_by_the_class_that_the_loader_raised(loader: Any) -> None:
    for error in (ValueError("17"), KeyError("17"), OSError(17, "17"), TooFewError(17, 18)):
        server = failed(loader(error))
        for call in (lambda: feedline.attach("train", timeout_secs=LONG_SECS), server.wait):
            with pytest.raises(type(error)) as raised:
                call()
            assert isinstance(raised.value, feedline.LoaderError)
            assert "the loader raised" in str(raised.value)
            assert "17" in str(raised.value)
        server.stop()


@pytest.mark.parametrize(
    ("raised", "bases"),
    [
        ("builtins:ValueError", [ValueError]),
        ("builtins:UnicodeDecodeError", [UnicodeDecodeError]),
        (f"{__name__}:TooFewError", [TooFewError]),
        (f"{__name__}:OddError", []),
        (f"{__name__}:NoSuchError", []),
        ("no_such_module:Error", []),
        ("builtins:StopIteration", []),
        ("builtins:KeyboardInterrupt", []),
        ("builtins:len", []),
        ("feedline:FeedEndedError", []),
        ("", []),
        (None, []),
    ],
)
def test_only_plain_exceptions_that_are_here_are_taken(raised: Any, bases: Any) -> None:
    error = loader_error("17", raised)
    for again in (error, pickle.loads(pickle.dumps(error))):
        found = [base for base in type(again).__bases__ if base is not feedline.LoaderError]
        assert found == (bases or [feedline.FeedlineError])
        assert isinstance(again, feedline.LoaderError)
        assert (str(again), type(again).__name__) == ("17", "LoaderError")


def test_shared_feeds_raise_the_same() -> None:
    with pytest.raises(feedline.SchemaError, match="changed the structure of its batches"):
        for _ in feedline.share(changes_its_structure, "train"):
            pass
    # A consumer that comes while the server still ends, and one that comes after it.
    with pytest.raises(OSError, match="no such bucket") as raised:
        for _ in feedline.share(lambda: Raises(OSError("no such bucket")), "other"):
            pass
    assert isinstance(raised.value, feedline.LoaderError)


def make_nothing() -> Any:
    raise KeyError("no such data set")


def test_what_make_loader_raises_is_caught_by_its_class() -> None:
    with pytest.raises(KeyError, match="no such data set") as raised:
        feedline.share(make_nothing, "train")
    assert isinstance(raised.value, feedline.LoaderError)
