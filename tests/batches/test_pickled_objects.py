"""Python objects travel only with `allow_pickle=True` on both sides."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import say
from support.hanging_loaders import Awaited
from support.loaders import Opaque


def batches(count: int = 5) -> list[dict[str, Any]]:
    return [{"x": np.arange(6) + i, "meta": {"camera": Opaque(i)}} for i in range(count)]


def test_both_sides() -> None:
    with (
        feedline.Server(batches(), "train", epochs=1, allow_pickle=True),
        feedline.attach("train", allow_pickle=True) as feed,
    ):
        got = list(feed)
    assert [one["meta"]["camera"] for one in got] == [Opaque(i) for i in range(5)]
    assert all(np.array_equal(one["x"], np.arange(6) + i) for i, one in enumerate(got))


@pytest.mark.parametrize(
    "thing", [{1, 2}, frozenset("ab"), Path("/data"), range(3), 3 + 4j, np.arange(3, dtype=object)]
)
def test_other_objects(thing: Any) -> None:
    with (
        feedline.Server([{"x": np.zeros(3), "it": thing}], "train", epochs=1, allow_pickle=True),
        feedline.attach("train", allow_pickle=True) as feed,
    ):
        (got,) = feed
    assert type(got["it"]) is type(thing)
    assert np.all(got["it"] == thing)


def consume_objects(name: str) -> None:
    with feedline.attach(name, allow_pickle=True) as feed:
        say("done", values=[batch["meta"]["camera"].value for batch in feed])


def test_in_another_process(start: Start) -> None:
    with feedline.Server(batches(), "train", epochs=1, allow_pickle=True):
        assert start(consume_objects, name="train").expect("done")["values"] == list(range(5))


def test_the_server_refuses_with_the_fields_name_and_the_way_out() -> None:
    loader = Awaited(batches())
    loader.server = server = feedline.Server(loader, "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError) as seen:
        feedline.attach("train", allow_pickle=True)
    with pytest.raises(feedline.SchemaError) as raised:
        server.wait()
    for error in (seen.value, raised.value):
        for part in ("allow_pickle=True", "camera", "Opaque"):
            assert part in str(error)
    server.stop()


def test_the_consumer_refuses_and_the_feed_lives_on() -> None:
    with feedline.Server(batches(), "train", allow_pickle=True):
        with pytest.raises(feedline.FeedlineError, match="allow_pickle=True") as error:
            next(iter(feedline.attach("train")))
        with feedline.attach("train", allow_pickle=True) as feed:
            assert len(list(feed)) == 5
    assert "camera" in str(error.value)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.path),))


def test_nothing_is_unpickled_by_one_who_did_not_agree(tmp_path: Path) -> None:
    trace = tmp_path / "exploded"
    batch = {"x": np.arange(6), "meta": Bomb(str(trace))}
    with (
        feedline.Server([batch], "train", epochs=1, allow_pickle=True),
        pytest.raises(feedline.FeedlineError, match="meta"),
    ):
        next(iter(feedline.attach("train")))
    assert not trace.exists()


def test_a_batch_size_on_objects_is_refused_by_the_fields_name() -> None:
    with (
        feedline.Server(batches(), "train", epochs=1, allow_pickle=True),
        pytest.raises(feedline.BatchSizeError, match="camera"),
    ):
        next(iter(feedline.attach("train", batch_size=2, allow_pickle=True)))


def test_what_cannot_be_pickled_is_refused_by_the_fields_name() -> None:
    server = feedline.Server(
        [{"x": np.arange(6), "hook": lambda: 0}], "train", epochs=1, allow_pickle=True
    )
    server.start()
    with pytest.raises((feedline.SchemaError, feedline.LoaderError), match="hook"):
        server.wait()
    server.stop()


def test_plain_batches_use_no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("pickle was used")

    for name in ("dumps", "loads", "Pickler", "Unpickler", "dump", "load"):
        monkeypatch.setattr(pickle, name, refuse)
    batch = {"x": np.arange(6), "name": ["a"] * 6, "n": 2**70, "none": None}
    with (
        feedline.Server([batch], "train", epochs=1, allow_pickle=True),
        feedline.attach("train", allow_pickle=True) as feed,
    ):
        (got,) = feed
    assert got["n"] == 2**70
