"""A state is a place in an epoch's order: loading it into another order is warned of."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

import feedline
from feedline._loader import is_sequential
from support.loaders import Numbered, Resumable
from support.reading import read
from support.waiting import eventually

SHUFFLED: Any = DataLoader(TensorDataset(torch.arange(100)), 10, shuffle=True)
IN_ORDER: Any = DataLoader(TensorDataset(torch.arange(100)), 10)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What the log has to say of orders so far."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "another order" in record.getMessage():
                found.append(record.getMessage())

    handler = Keep()
    logging.getLogger("feedline").addHandler(handler)
    yield found
    logging.getLogger("feedline").removeHandler(handler)


def saved(loader: Any, *, batches: int = 3, **options: Any) -> dict[str, Any]:
    """The state of a consumer after so many batches of 10."""
    with (
        feedline.Server(loader, "train", **options),
        feedline.attach("train", batch_size=10) as feed,
    ):
        iterator = iter(feed)
        for _ in range(batches):
            next(iterator)
        return feed.state_dict()


def loaded(state: dict[str, Any], loader: Any, **options: Any) -> dict[str, Any]:
    """Load it with another server, and read on; the state of that feed."""
    with (
        feedline.Server(loader, "train", **options),
        feedline.attach("train", batch_size=10) as feed,
    ):
        feed.load_state_dict(state)
        own = feed.state_dict()
        next(iter(feed))
        return own


def test_another_run_of_a_loader_that_shuffles_is_warned_of_once(warnings: list[str]) -> None:
    state = saved(SHUFFLED)
    own = loaded(state, SHUFFLED)
    assert re.fullmatch("run [0-9a-f]{16}", state["order"])
    assert re.fullmatch("run [0-9a-f]{16}", own["order"])
    eventually(lambda: bool(warnings))
    assert warnings == [
        f'feed "train": the state was saved in another order ("{state["order"]}") than the feed\'s '
        f'("{own["order"]}"): samples of epoch 0 may come twice or not at all\n'
        "  serve it with seed=, or with state_file=, so that an epoch's order is the same in every "
        "run"
    ]


@pytest.mark.parametrize(
    ("loader", "options", "order"),
    [
        pytest.param(SHUFFLED, {"seed": 7}, "seed 7", id="seed"),
        pytest.param(IN_ORDER, {}, "sequential", id="DataLoader in order"),
        pytest.param([torch.arange(10)] * 10, {}, "sequential", id="list"),
    ],
)
def test_one_order_in_every_run_is_not_warned_of(
    loader: Any, options: dict[str, Any], order: str, warnings: list[str]
) -> None:
    state = saved(loader, **options)
    assert state["order"] == order
    assert loaded(state, loader, **options)["order"] == order
    assert warnings == []


def test_another_seed_is_another_order(warnings: list[str]) -> None:
    loaded(saved(SHUFFLED, seed=7), SHUFFLED, seed=8)
    eventually(lambda: len(warnings) == 1)
    assert '("seed 7") than the feed\'s ("seed 8")' in warnings[0]


@pytest.mark.parametrize("batches", [0, 10])
def test_an_epochs_beginning_and_end_are_the_same_places_in_any_order(
    batches: int, warnings: list[str]
) -> None:
    state = saved(SHUFFLED, batches=batches)
    assert (state["epoch"], state["sample"]) in ((0, 0), (0, 100), (1, 0))
    with (
        feedline.Server(SHUFFLED, "train", history=1.0),
        feedline.attach("train", batch_size=10) as feed,
    ):
        feed.load_state_dict(state)
    assert warnings == []


def test_a_state_of_an_older_version_is_taken_as_it_is(warnings: list[str]) -> None:
    state = saved(SHUFFLED)
    del state["order"]
    loaded(state, SHUFFLED)
    assert warnings == []


@pytest.mark.parametrize("order", [7, ["run"], b"run"])
def test_what_is_no_order_is_refused(order: Any) -> None:
    with feedline.Server(SHUFFLED, "train"), feedline.attach("train", batch_size=10) as feed:
        state = {**feed.state_dict(), "order": order}
        with pytest.raises(feedline.FeedValueError, match="is not the state_dict"):
            feed.load_state_dict(state)


def test_a_server_that_goes_on_from_its_state_file_has_its_order(
    tmp_path: Path, warnings: list[str]
) -> None:
    options: dict[str, Any] = {"state_file": tmp_path / "state", "ring": 20, "history": 0}
    state = saved(Resumable(100, 10), **options)
    assert loaded(state, Resumable(100, 10), **options)["order"] == state["order"]
    assert warnings == []
    (tmp_path / "state").unlink()
    with (
        feedline.Server(Resumable(100, 10), "train", **options),
        feedline.attach("train", batch_size=10) as feed,
    ):
        assert feed.state_dict()["order"] != state["order"]


def test_the_server_may_be_another_when_one_goes_on(warnings: list[str]) -> None:
    """The state was loaded while the first was there; it is compared again with the second."""
    with feedline.Server(SHUFFLED, "train"):
        feed = feedline.attach("train", batch_size=10)
        next(iter(feed))
        state = feed.state_dict()
    feed.load_state_dict(state)
    assert warnings == []

    def goes_on() -> bool:
        try:
            next(iter(feed))
        except feedline.ServerLostError:
            return False
        return True

    with feedline.Server(SHUFFLED, "train"), feed:
        eventually(goes_on)
        order = feed.state_dict()["order"]
    eventually(lambda: len(warnings) == 1)
    assert f'("{state["order"]}") than the feed\'s ("{order}")' in warnings[0]


@pytest.mark.parametrize("seed", [None, 7])
def test_a_consumer_that_reconnects_to_another_order_is_warned(
    seed: int | None, warnings: list[str]
) -> None:
    """It goes on at its next sample, which is another in another order."""
    with feedline.Server(Numbered(100, 10), "train", seed=seed):
        feed = feedline.attach("train", batch_size=10, reconnect_secs=60)
        iterator = iter(feed)
        next(iterator)
        before = feed.state_dict()["order"]
    with feedline.Server(Numbered(100, 10), "train", seed=seed), feed:
        # What was published by then is still in the first one's ring.
        read(iterator)
        now = feed.state_dict()["order"]
    if seed is not None:
        assert (before, now, warnings) == ("seed 7", "seed 7", [])
    else:
        eventually(lambda: len(warnings) == 1)
        assert f'in another order ("{now}") than before ("{before}"): samples' in warnings[0]


class Own(DataLoader[Any]):
    pass


class OwnOrder(DataLoader[Any]):
    def __iter__(self) -> Any:
        return super().__iter__()


class OwnBatches(BatchSampler):
    pass


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


def test_only_what_is_known_to_be_sequential_is() -> None:
    data: Any = TensorDataset(torch.arange(100))
    in_order = torch.utils.data.SequentialSampler(data)
    sequential: list[Any] = [
        [np.arange(3)],
        (np.arange(3),),
        DataLoader(data, 10),
        DataLoader(data, 10, drop_last=True, num_workers=2),
        DataLoader(data, batch_size=None),
        Own(data, 10),
    ]
    others: list[Any] = [
        (np.arange(3) for _ in range(2)),
        DataLoader(data, 10, shuffle=True),
        DataLoader(data, 10, sampler=RandomSampler(data)),
        DataLoader(data, batch_sampler=OwnBatches(in_order, 10, False)),
        DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 10, False)),
        DataLoader(Endless(), 10),
        OwnOrder(data, 10),
    ]
    assert [is_sequential(loader) for loader in sequential] == [True] * len(sequential)
    assert [is_sequential(loader) for loader in others] == [False] * len(others)
