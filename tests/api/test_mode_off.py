"""`FEEDLINE_MODE=off`: the loader itself, which a script can use as it uses a feed."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "off")


class OwnLoader(DataLoader[Any]):
    """A loader class of the user's own."""


class Stateful(OwnLoader):
    """A loader that can resume by itself."""

    def state_dict(self) -> dict[str, Any]:
        return {"own": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state


def numbers(kind: type[OwnLoader] = OwnLoader) -> OwnLoader:
    return kind(TensorDataset(torch.arange(10)), batch_size=4)


def generated() -> Iterator[Any]:
    yield np.arange(3)
    yield np.arange(3, 5)


LOADERS: list[tuple[Any, list[int]]] = [
    (numbers, list(range(10))),
    (generated, list(range(5))),
    (lambda: [np.arange(3)], [0, 1, 2]),
]


def ids(loader: Any) -> list[int]:
    batches = [batch[0] if isinstance(batch, list) else batch for batch in loader]
    return [int(i) for batch in batches for i in batch]


@pytest.mark.parametrize(("make_loader", "expected"), LOADERS)
def test_a_script_for_feeds_runs_with_it(make_loader: Any, expected: list[int]) -> None:
    with feedline.share(make_loader, "train") as feed:
        assert feed.name == "train"
        assert feed.epoch == 0
        for epoch in range(2):
            feed.set_epoch(epoch)
            assert ids(feed) == expected
            assert feed.epoch == epoch
        stats = feed.stats()
        assert (stats["name"], stats["server_pid"], stats["mode"]) == ("train", os.getpid(), "off")
        state = feed.state_dict()
        assert state == {"feed": "train", "epoch": 2, "sample": 0}
        feed.load_state_dict(state)
        feed.close()


def test_the_keys_of_its_stats_are_a_feed_s(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = feedline.share(numbers, "train").stats()
    monkeypatch.delenv("FEEDLINE_MODE")
    with feedline.Server(numbers(), "train"), feedline.attach("train") as feed:
        assert feed.stats().keys() == plain.keys()


def test_it_is_the_loader_itself() -> None:
    loader = numbers()
    feed: Any = feedline.share(lambda: loader, "train")
    assert feed is loader
    assert isinstance(feed, OwnLoader)
    assert type(feed).__name__ == "OwnLoader"
    assert (feed.batch_size, len(feed)) == (4, 3)
    again: Any = feedline.share(lambda: loader, "other")
    assert again is loader
    assert (again.name, ids(again)) == ("other", list(range(10)))


def test_what_wraps_a_list_behaves_like_one() -> None:
    wrapped: Any = feedline.share(lambda: [np.arange(3)] * 4, "train")
    assert len(wrapped) == 4
    assert wrapped[0].tolist() == [0, 1, 2]
    assert wrapped.count is not None


@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_a_copy_has_the_methods_too(make: Any) -> None:
    for make_loader, expected in LOADERS:
        again = make(feedline.share(make_loader, "train"))
        assert (again.name, ids(again)) == ("train", expected)
    loader = make(feedline.share(numbers, "train"))
    assert isinstance(loader, OwnLoader)
    # As Lightning makes a loader anew.
    anew: Any = type(loader)(loader.dataset, batch_size=5)
    assert anew.name == "train"


def test_a_loader_s_own_states_stay_its_own() -> None:
    feed: Any = feedline.share(lambda: numbers(Stateful), "train")
    assert feed.state_dict() == {"own": True}
    feed.load_state_dict({"own": False})
    assert feed.loaded == {"own": False}


def test_a_loader_s_own_attributes_stay_its_own() -> None:
    class Counts:
        def __init__(self) -> None:
            self.name = "own"

        def __iter__(self) -> Iterator[Any]:
            self.epoch = 17
            yield np.arange(3)

    feed = feedline.share(Counts, "train")
    assert (ids(feed), feed.epoch, feed.name) == ([0, 1, 2], 17, "own")


def test_a_place_in_mid_epoch_cannot_be_had(caplog: pytest.LogCaptureFixture) -> None:
    feed = feedline.share(numbers, "train")
    feed.load_state_dict({"feed": "train", "epoch": 3, "sample": 4})
    assert "begins epoch 3 anew, not at sample 4" in caplog.text
    assert ids(feed) == list(range(10))
    assert feed.epoch == 3


def test_samplers_are_told_the_epoch() -> None:
    told = []

    class Sampler(torch.utils.data.SequentialSampler):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    dataset = TensorDataset(torch.arange(10))
    loader: Any = DataLoader(dataset, sampler=Sampler(dataset))
    feedline.share(lambda: loader, "train").set_epoch(7)
    assert told == [7]
