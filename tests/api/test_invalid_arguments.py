"""What bad input gets: an error at the call that caused it, with numbers and the way out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import Numbered, Record
from support.reading import expected, read


def refused(error: pytest.ExceptionInfo[BaseException], *parts: object) -> None:
    """All the parts must be in the message; separators between digits don't count."""
    message = str(error.value)
    plain = message.replace(",", "").replace("_", "")
    for part in parts:
        assert str(part) in message or str(part) in plain, message


def test_an_unknown_name() -> None:
    begun = time.monotonic()
    with pytest.raises(feedline.FeedNotFoundError) as error:
        feedline.attach("imagenet", timeout_secs=0.2)
    assert isinstance(error.value, TimeoutError)
    assert time.monotonic() - begun >= 0.2
    refused(error, '"imagenet"', "0.2", "serve(")


def test_an_unknown_name_is_told_before_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    with (
        feedline.Server(Numbered(10, 5), "cifar"),
        pytest.raises(feedline.FeedNotFoundError),
    ):
        feedline.attach("cifra", timeout_secs=6)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith('waiting up to 6 s for a feed named "cifra"\n  running now: cifar (pid')


def test_an_unknown_name_beside_feeds_that_run() -> None:
    with feedline.Server(Numbered(10, 5), "cifar"):
        with pytest.raises(feedline.FeedNotFoundError) as error:
            feedline.attach("imagenet", timeout_secs=0)
        refused(error, '"imagenet"', "cifar", os.getpid())


BAD_NAMES = ["a/b", "../up", "", ".", "..", "n" * 300, "a\0b", "new\nline", "/"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=[repr(name)[:12] for name in BAD_NAMES])
def test_a_name_that_cannot_be_one(name: str, folder: Path) -> None:
    # Said at once, and not after an hour: no use in waiting for such a feed.
    calls: list[Callable[[], object]] = [
        lambda: feedline.attach(name, timeout_secs=3600),
        lambda: feedline.Server(Numbered(10, 5), name),
        lambda: feedline.serve(Numbered(10, 5), name, epochs=1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="name") as error:
            call()
        if len(name) == 300:
            refused(error, 300)
        if "/" in name:
            refused(error, "/")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", [7, None, b"train"])
def test_a_name_that_is_no_string(name: Any) -> None:
    with pytest.raises(TypeError):
        feedline.attach(name)
    with pytest.raises(TypeError):
        feedline.Server(Numbered(10, 5), name)


@pytest.mark.parametrize("name", ["train", "größe", "v1.2-final", "日本", "n" * 60])
def test_names_that_are_fine(name: str) -> None:
    with feedline.Server(Numbered(10, 5), name, epochs=1):
        assert [info.name for info in feedline.feeds()] == [name]
        with feedline.attach(name, batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)


@pytest.mark.parametrize("batch_size", [0, -1, -(2**70)])
def test_a_batch_size_below_one(batch_size: int) -> None:
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        with pytest.raises(feedline.BatchSizeError) as error:
            feedline.attach("train", batch_size=batch_size)
        assert isinstance(error.value, ValueError)
        refused(error, batch_size, "batch_size")
        # Nothing was lost by it.
        with feedline.attach("train", batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)


def test_a_batch_size_that_no_ring_can_hold() -> None:
    with pytest.raises(feedline.BatchSizeError) as error:
        feedline.attach("nowhere", batch_size=1 << 70)
    refused(error, f"batch_size={1 << 70}", f"{2**40 - 1} samples at most")


@pytest.mark.parametrize("batch_size", ["64", 2.5, [8], True])
def test_a_batch_size_that_is_no_whole_number(batch_size: Any) -> None:
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        with pytest.raises((feedline.BatchSizeError, TypeError)) as error:
            feedline.attach("train", batch_size=batch_size)
        refused(error, "batch_size", repr(batch_size))


def test_a_bad_batch_size_is_said_before_the_feed_is_looked_for() -> None:
    with pytest.raises(feedline.BatchSizeError):
        feedline.attach("nowhere", batch_size=0, timeout_secs=30)


def test_a_numpy_integer_is_a_whole_number() -> None:
    size: Any = np.int64(5)
    with (
        feedline.Server(Numbered(10, 5), "train", epochs=1),
        feedline.attach("train", batch_size=size) as feed,
    ):
        assert read(feed) == expected(0, 10, 5)


IMAGES = np.zeros((6, 3))
UNCUTTABLE: dict[str, tuple[Any, list[str]]] = {
    "strings": ({"image": IMAGES, "name": ["a"] * 6}, ["name"]),
    "another length": ({"image": IMAGES, "classes": np.zeros(10)}, ["classes", "10", "6"]),
    "ragged": ({"tokens": [np.arange(3), np.arange(4)]}, ["tokens"]),
    "a field without a batch dimension": ((IMAGES, np.array(7)), ["batch[1]"]),
    "a string in a dataclass": (Record(image=IMAGES, label=np.arange(6)), ["source"]),
}


@pytest.mark.parametrize("what", sorted(UNCUTTABLE))
def test_a_batch_size_on_a_feed_that_cannot_be_cut(what: str) -> None:
    batch, parts = UNCUTTABLE[what]
    with feedline.Server([batch] * 3, "train", epochs=1):
        with pytest.raises(feedline.BatchSizeError) as error:
            feedline.attach("train", batch_size=4)
        refused(error, "batch_size=None", *parts)
        with feedline.attach("train") as feed:
            assert len(list(feed)) == 3


def test_a_batch_size_on_whole_batches_asked_for() -> None:
    with (
        feedline.Server([{"x": IMAGES}] * 3, "train", epochs=1, whole_batches=True),
        pytest.raises(feedline.BatchSizeError, match="whole"),
    ):
        feedline.attach("train", batch_size=4)


@pytest.mark.parametrize("loader", [42, None, object(), len])
def test_a_loader_that_is_not_iterable(loader: Any, folder: Path) -> None:
    with pytest.raises(TypeError) as error:
        feedline.Server(loader, "train")
    refused(error, "itera", type(loader).__name__)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "options",
    [{"epochs": -1}, {"epochs": "3"}, {"samples": -5}, {"wait_for": 0}, {"wait_for": -1}],
    ids=str,
)
def test_server_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        feedline.Server(Numbered(10, 5), "train", **options)
    refused(error, *options, *options.values())


@pytest.mark.parametrize(
    ("option", "value", "ways"),
    [
        ("join", "later", ["auto", "now"]),
        ("format", "tf", ["torch", "numpy"]),
        ("mode", "rw", ["cow", "readonly", "copy"]),
        ("timeout_secs", -1, []),
        ("timeout_secs", "a", ["a number of seconds"]),
        ("timeout_secs", [3], ["a number of seconds"]),
        ("reconnect_secs", "3", ["a number of seconds"]),
    ],
)
def test_attach_options_out_of_range(option: str, value: Any, ways: list[str]) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ValueError, match=option) as error:
        feedline.attach("nowhere", **options)
    refused(error, value, *ways)


def test_a_second_server_of_the_same_name_in_this_process() -> None:
    with feedline.Server(Numbered(10, 5), "train", epochs=1):
        with pytest.raises(feedline.FeedlineError) as error:
            feedline.Server(Numbered(10, 5), "train").start()
        refused(error, '"train"', os.getpid())
        with feedline.attach("train", batch_size=5) as feed:
            assert read(feed) == expected(0, 10, 5)


def serve_the_same(name: str) -> None:
    feedline.serve(Numbered(10, 5), name, epochs=1)


def test_a_second_server_of_the_same_name_in_another_process(start: Start) -> None:
    """Scenario 15."""
    first = start(roles.serve, loader_args=[100, 10])
    first.expect("ready")
    start(serve_the_same, name="train").expect_error(
        feedline.FeedlineError, '"train"', f"pid {first.pid}"
    )
    with feedline.attach("train", batch_size=10) as feed:
        assert read(feed) == expected(0, 100, 10)


def test_the_name_of_a_server_that_died_without_a_trace_is_free(start: Start) -> None:
    first = start(roles.serve, loader_args=[100, 10])
    first.expect("ready")
    first.kill()
    assert feedline.feeds() == []
    with pytest.raises(feedline.FeedNotFoundError):
        feedline.attach("train", timeout_secs=0.1)
    with feedline.Server(Numbered(10, 5), "train", epochs=1) as second:
        assert [(info.name, info.pid) for info in feedline.feeds()] == [("train", os.getpid())]
        assert second.stats()["pid"] == os.getpid()


def race_for_the_name(name: str) -> None:
    try:
        with feedline.Server(Numbered(10, 5), name):
            say("won")
            hear()
    except feedline.FeedlineError:
        say("lost")


def test_of_many_servers_started_together_one_gets_the_name(start: Start) -> None:
    children = [start(race_for_the_name, name="train") for _ in range(5)]
    events = {child.pid: child.report()["event"] for child in children}
    assert sorted(events.values()) == ["lost"] * 4 + ["won"]
    assert [events[info.pid] for info in feedline.feeds()] == ["won"]


@pytest.mark.parametrize("kind", ["dataset", "tensor", "array"])
def test_what_holds_samples_is_no_loader(kind: str) -> None:
    """Each sample would be taken for a batch, and cut along its first dimension."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import TensorDataset

    samples = torch.zeros(100, 3)
    holder = {"dataset": TensorDataset(samples), "tensor": samples, "array": samples.numpy()}[kind]
    with pytest.raises(
        TypeError, match=r"a loader is an iterable of batches, not .*\n  .*DataLoader"
    ):
        feedline.Server(holder, "train")
