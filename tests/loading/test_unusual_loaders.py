"""Loaders with habits: a `len` that raises, iterators of their own, unusual record classes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import feedline
from support.loaders import Numbered
from support.reading import expected, read
from support.waiting import TIMEOUT_SECS, allow_to_go_wrong, eventually


class Unmeasurable(Numbered):
    """Has a `__len__` that doesn't answer."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__(100, 10)
        self.error = error

    def __len__(self) -> int:
        raise self.error("no length")


@pytest.mark.parametrize("error", [NotImplementedError, TypeError, RuntimeError, ZeroDivisionError])
def test_a_len_that_raises_is_no_length(error: type[Exception]) -> None:
    """An abstract `__len__` says NotImplementedError as a rule; the batches come all the same."""
    with (
        feedline.Server(Unmeasurable(error), "train", epochs=1) as server,
        feedline.attach("train", batch_size=7) as feed,
    ):
        assert server.stats()["samples_per_epoch"] in (None, 100)
        assert read(feed) == expected(0, 100, 7)
        assert len(feed) == 15


class FailsAtOnce(Numbered):
    """Fails at every access, before it is iterated, once the gate is open."""

    def __init__(self) -> None:
        super().__init__(100, 10)
        self.gate = threading.Event()

    @property
    def sampler(self) -> Any:
        self.gate.wait()
        raise RuntimeError("the cluster is gone")


def test_a_loader_that_fails_before_its_first_epoch() -> None:
    """Consumers that wait for the first batch get the error at once, and the name is free."""
    loader = FailsAtOnce()
    server = feedline.Server(loader, "train")
    server.start()
    with ThreadPoolExecutor(1) as pool:
        attaching = pool.submit(feedline.attach, "train", timeout_secs=60)
        eventually(lambda: bool(server.stats()["consumers"]))
        loader.gate.set()
        with pytest.raises(feedline.FeedlineError, match="the cluster is gone"):
            attaching.result(timeout=TIMEOUT_SECS)
    with pytest.raises((RuntimeError, feedline.FeedlineError), match="the cluster is gone"):
        server.wait(60)
    assert server.stats()["state"] in ("failed", "stopped")
    server.stop()
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=1),
        feedline.attach("train", batch_size=7) as feed,
    ):
        assert read(feed) == expected(0, 100, 7)


class Once:
    """Its own iterator, which runs out for good: `iter(loader)`, a CSV reader, a socket."""

    def __init__(self, *, gated: bool = False) -> None:
        self.batches = iter(Numbered(30, 10))
        self.gate = threading.Event()
        self.ran_out = threading.Event()
        if not gated:
            self.gate.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = next(self.batches, None)
        if batch is None:
            self.gate.wait()
            self.ran_out.set()
            raise StopIteration
        return batch


class Rewinding(Once):
    """Its own iterator too, but one that `iter()` rewinds, as many data pipelines do."""

    def __init__(self) -> None:
        super().__init__()
        self.numbered = Numbered(30, 10)

    def __iter__(self) -> Self:
        self.batches = iter(self.numbered)
        return self


@pytest.mark.parametrize("attach_late", [False, True])
def test_an_iterator_of_its_own_is_one_epoch(
    attach_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What follows is the feed's end, or an error: never epochs of nothing.

    Nor may it be over before anybody came: the loader is done with it in no time.
    """
    loader = Once(gated=not attach_late)
    with feedline.Server(loader, "train") as server:
        if attach_late:
            eventually(loader.ran_out.is_set)
            allow_to_go_wrong(0.3)
        feed = feedline.attach("train", batch_size=10, timeout_secs=60)
        iterator = iter(feed)
        first = next(iterator)
        loader.gate.set()
        assert read([first]).keys + read(iterator).keys == list(range(30))
        with pytest.raises(feedline.FeedlineError) as error:
            list(feed)
        feed.close()
        if isinstance(error.value, feedline.FeedEndedError):
            eventually(lambda: "gone through only once" in caplog.text)
        else:
            assert "once" in str(error.value)
            with pytest.raises(feedline.FeedlineError, match="once"):
                server.wait(60)


def test_an_iterator_that_rewinds_has_many_epochs() -> None:
    with (
        feedline.Server(Rewinding(), "train"),
        feedline.attach("train", batch_size=10) as feed,
    ):
        begin = read(feed).keys[0] // 1_000_000
        for epoch in range(begin + 1, begin + 4):
            assert read(feed) == expected(epoch, 30, 10)


@dataclass
class Versioned:
    x: Any
    version: ClassVar[int] = 3


@dataclass
class Seeded:
    x: Any
    seed: InitVar[int]

    def __post_init__(self, seed: int) -> None:
        self.drawn = seed


@pytest.mark.parametrize(
    "batch", [Versioned(np.arange(8)), Seeded(np.arange(8), seed=7)], ids=["ClassVar", "InitVar"]
)
def test_a_dataclass_with_something_that_is_no_field(batch: Any) -> None:
    """It travels as what it is, and is cut like any other."""
    with feedline.Server([batch], "train", epochs=2) as server:
        with feedline.attach("train") as feed:
            (got,) = list(feed)
        assert type(got) is type(batch)
        assert np.array_equal(got.x, np.arange(8))
        assert server.stats()["samples_per_epoch"] == 8
        with feedline.attach("train", batch_size=3, format="numpy") as feed:
            assert [got.x.tolist() for got in feed] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@dataclass
class Output(OrderedDict[str, Any]):
    """A dataclass and a dict at once, as the outputs of some model libraries are."""

    x: Any
    y: Any = None

    def __post_init__(self) -> None:
        for field in fields(self):
            self[field.name] = getattr(self, field.name)


def test_a_dataclass_that_is_a_dict_as_well() -> None:
    """Whichever way it is asked, it answers; a plain dict is all right if need be."""
    batch = Output(np.arange(8), np.arange(8) * 2)
    with feedline.Server([batch], "train", epochs=1), feedline.attach("train") as feed:
        (got,) = list(feed)
    assert sorted(got) == ["x", "y"]
    assert np.array_equal(got["x"], batch["x"])
    assert np.array_equal(got["y"], batch["y"])
    if isinstance(got, Output):
        assert np.array_equal(got.x, batch.x)
        assert np.array_equal(got.y, batch.y)
