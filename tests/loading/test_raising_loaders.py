"""Scenario 12: a loader that raises. Everyone gets what came before, and then its traceback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support import roles
from support.hanging_loaders import Awaited
from support.loaders import Broken, Numbered, torch_loader
from support.reading import expected, is_exact, keys_of, read
from support.waiting import eventually


@contextmanager
def failing(loader: Any, kind: type[feedline.FeedlineError], **options: Any) -> Iterator[None]:
    """Serve a loader that fails: `wait()` must say so too."""
    server = feedline.Server(loader, "train", **options)
    if isinstance(loader, Awaited):
        loader.server = server
    server.start()
    yield
    with pytest.raises(kind):
        server.wait()
    server.stop()


def run_to_error(feed: Any) -> tuple[list[int], list[int], BaseException]:
    """Sizes and keys of what arrived before the error, and the error."""
    sizes: list[int] = []
    keys: list[int] = []
    with pytest.raises(feedline.FeedlineError) as error:  # noqa: PT012 - and what came before it
        for batch in feed:
            assert is_exact(batch)
            sizes.append(len(keys_of(batch)))
            keys += keys_of(batch)
    return sizes, keys, error.value


@pytest.mark.parametrize("batch_size", [None, 25, 50, 100])
def test_everyone_gets_what_came_before_and_then_the_loaders_own_traceback(
    batch_size: int | None,
) -> None:
    server = feedline.Server(Broken(2000, 50, at=1000), "train", epochs=1, ring=200)
    server.start()
    feed = feedline.attach("train", batch_size=batch_size)
    sizes, keys, error = run_to_error(feed)
    assert keys == list(range(1000))
    assert set(sizes) == {batch_size or 50}
    assert isinstance(error, feedline.LoaderError)
    assert "sample 1000 is truncated" in str(error)
    assert "OSError" in str(error)
    assert "decode_broken_sample" in str(error)
    with pytest.raises(feedline.LoaderError, match="sample 1000 is truncated") as raised:
        server.wait()
    assert isinstance(raised.value.__cause__, OSError)
    assert server.stats()["state"] == "failed"
    server.stop()
    feed.close()


def test_a_batch_size_that_does_not_divide_what_came_before() -> None:
    with failing(Broken(2000, 50, at=1000), feedline.LoaderError, epochs=1, ring=200):
        feed = feedline.attach("train", batch_size=32)
        sizes, keys, error = run_to_error(feed)
        assert isinstance(error, feedline.LoaderError)
        # A short batch is an epoch's end, and this is none: the last eight are not handed out.
        assert keys == list(range(992))
        assert sizes == [32] * 31
        feed.close()


def test_in_processes_every_consumer_raises(start: Start) -> None:
    server = start(
        roles.serve,
        loader="Broken",
        loader_args=[2000, 50],
        loader_options={"at": 1000},
        epochs=1,
        ring=200,
        wait_for=2,
    )
    consumers = [start(roles.consume, batch_size=size) for size in (20, 50)]
    for consumer in consumers:
        consumer.expect("attached")
        report = consumer.expect_error(
            feedline.LoaderError, "OSError", "sample 1000 is truncated", "decode_broken_sample"
        )
        assert "loaders.py" in report["message"]
    server.expect("ready")
    report = server.expect_error(feedline.LoaderError, "sample 1000 is truncated")
    assert report["cause"] == "OSError"


def test_a_torch_dataloaders_worker_raises() -> None:
    pytest.importorskip("torch")
    loader = torch_loader(2000, 50, broken_at=1000, num_workers=1)
    with failing(loader, feedline.LoaderError, epochs=1, ring=200):
        feed = feedline.attach("train", batch_size=50)
        _, keys, error = run_to_error(feed)
        assert keys == list(range(1000))
        assert "decode_broken_sample" in str(error)
        assert "sample 1000 is truncated" in str(error)
        feed.close()


def test_it_raises_before_its_first_batch() -> None:
    with (
        failing(Awaited(Broken(2000, 50, at=0)), feedline.LoaderError, epochs=1),
        pytest.raises(feedline.LoaderError, match="sample 0 is truncated"),
    ):
        feedline.attach("train", batch_size=50)


def test_it_raises_in_iter() -> None:
    class NoStart:
        def __iter__(self) -> Iterator[Any]:
            raise RuntimeError("the bucket is gone")

    with (
        failing(Awaited(NoStart()), feedline.LoaderError, epochs=1),
        pytest.raises(feedline.LoaderError, match="the bucket is gone"),
    ):
        feedline.attach("train", batch_size=50)


def test_it_raises_in_the_second_epoch() -> None:
    begun = threading.Event()

    class SecondTime(Numbered):
        def _epoch(self, epoch: int) -> Iterator[Any]:
            if epoch == 1:
                begun.wait()
                raise RuntimeError("files were deleted overnight")
            yield from super()._epoch(epoch)

    with failing(SecondTime(100, 10), feedline.LoaderError, epochs=3):
        feed = feedline.attach("train", batch_size=10)
        iterator = iter(feed)
        first = next(iterator)
        begun.set()
        assert keys_of(first) + read(iterator).keys == expected(0, 100, 10).keys
        for _ in range(2):
            with pytest.raises(feedline.LoaderError, match="deleted overnight"):
                next(iter(feed))
        feed.close()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("error", "kind", "part"),
    [
        (Unprintable(), feedline.LoaderError, "Unprintable"),
        (ValueError("a name with a stray \udc80"), feedline.LoaderError, "ValueError"),
        (ValueError("x" * 20_000_000), feedline.LoaderError, "ValueError"),
        (SystemExit(3), feedline.ServerLostError, "SystemExit"),
    ],
    ids=["unprintable", "surrogate", "endless", "exit"],
)
def test_whatever_it_raises_the_consumer_learns_of_it(
    error: BaseException, kind: type[feedline.FeedlineError], part: str
) -> None:
    begun = threading.Event()

    def batches() -> Iterator[Any]:
        yield np.zeros((4, 2))
        begun.wait()
        raise error

    server = feedline.Server(batches(), "train", epochs=1)
    server.start()
    feed = feedline.attach("train", batch_size=4)
    iterator = iter(feed)
    assert len(next(iterator)) == 4
    begun.set()
    with pytest.raises(kind, match=part):
        next(iterator)
    with pytest.raises((feedline.LoaderError, SystemExit)):
        server.wait()
    server.stop()
    feed.close()


def test_nobody_waits_so_the_end_of_the_block_says_it() -> None:
    """An error that neither `wait()` nor a consumer has seen must not pass in silence."""
    with (
        pytest.raises(feedline.LoaderError, match="sample 0 is truncated"),
        feedline.Server(Broken(100, 10, at=0), "train", epochs=1) as server,
    ):
        eventually(lambda: server.stats()["state"] == "failed")


def test_serve_raises_the_loaders_failure() -> None:
    with pytest.raises(feedline.LoaderError, match="sample 0 is truncated") as error:
        feedline.serve(Broken(100, 10, at=0), "train", epochs=1)
    assert isinstance(error.value.__cause__, OSError)
