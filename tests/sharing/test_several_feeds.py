"""Several feeds, one server: they are started together, end together, and are told apart."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from support.commands import run
from support.share_scripts import SAMPLES, ids, numbers
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]


def negatives() -> list[Any]:
    return [-batch for batch in numbers()]


def fails_once(told: Path) -> Callable[[], Iterator[Any]]:
    def fails() -> Iterator[Any]:
        yield np.arange(4)
        while not told.exists():
            time.sleep(0.01)  # pause: polls
        raise ValueError("no more")

    return fails


BOTH: dict[str, Callable[[], Any]] = {"train": numbers, "val": negatives}


@contextlib.contextmanager
def sharing(makers: Any = BOTH, **keywords: Any) -> Iterator[dict[str, feedline.Feed]]:
    feeds = feedline.share(makers, "set", **{"linger_secs": 0.3, **keywords})
    try:
        yield feeds
    finally:
        for feed in feeds.values():
            feed.close()


def read_without_end(feed: feedline.Feed) -> None:
    while True:
        list(feed)


def test_one_process_serves_them_under_names_of_their_own(folder: Path) -> None:
    with sharing(batch_size={"train": 7, "val": 20}) as feeds:
        (pid,) = {feed.stats()["server_pid"] for feed in feeds.values()}
        assert feedline.feeds() == [
            (f"set.{part}", pid, str(folder / f"set.{part}.sock")) for part in BOTH
        ]
        for _ in range(2):
            assert ids(feeds["train"]) == list(range(SAMPLES))
            assert ids(feeds["val"]) == [-i for i in range(SAMPLES)]
        # A list tells how many batches it has, and not how many samples: an epoch's end does.
        assert [len(feed) for feed in feeds.values()] == [9, 3]
        with feedline.attach("set.val", batch_size=60) as other:
            assert ids(other) == [-i for i in range(SAMPLES)]
        listed = run("ls").stdout.splitlines()[1:]
        assert [line.split()[:2] for line in listed] == [
            ["set.train", str(pid)],
            ["set.val", str(pid)],
        ]
        assert "(with set.val)" in run("top", "--once").stdout
    eventually(lambda: not feedline.feeds())
    eventually(lambda: not list(folder.iterdir()))


def test_all_stay_while_one_of_them_has_a_job() -> None:
    with sharing(linger_secs=0.2) as feeds:
        feeds["val"].close()
        # Many times what it lingers: the other one's epochs are what passes the time.
        for _ in range(3):
            ids(feeds["train"])
        eventually(lambda: _state("set.val") == "running" and _consumers("set.val") == 0)
        with sharing() as again:
            pids = {feed.stats()["server_pid"] for feed in (*again.values(), feeds["train"])}
            assert len(pids) == 1
            assert ids(again["val"]) == [-i for i in range(SAMPLES)]


def _stats(name: str) -> dict[str, Any]:
    (listed,) = [one for one in json.loads(run("ls", "--json").stdout) if one["name"] == name]
    return dict(listed["stats"])


def _state(name: str) -> str:
    return str(_stats(name)["state"])


def _consumers(name: str) -> int:
    return len(_stats(name)["consumers"])


def test_a_part_of_them_can_be_shared_and_another_set_is_refused() -> None:
    with sharing() as feeds:
        with sharing({"val": negatives}) as part:
            assert ids(part["val"]) == [-i for i in range(SAMPLES)]
            assert part["val"].stats()["server_pid"] == feeds["train"].stats()["server_pid"]
        with pytest.raises(
            feedline.FeedMismatchError, match=r"serves set\.train, set\.val, and not"
        ):
            feedline.share({"train": numbers, "test": numbers}, "set")
        with pytest.raises(feedline.FeedMismatchError, match=r"and not set\n"):
            feedline.share(numbers, "set")
        with pytest.raises(feedline.FeedMismatchError, match=r"set\.val: source of"):
            feedline.share({"train": numbers, "val": lambda: numbers()[1:]}, "set")
        assert ids(feeds["train"]) == list(range(SAMPLES))


def test_one_that_fails_or_is_stopped_ends_the_others(tmp_path: Path) -> None:
    with sharing({"train": fails_once(tmp_path / "told"), "val": negatives}) as feeds:
        next(iter(feeds["val"]))
        (tmp_path / "told").touch()
        with pytest.raises(ValueError, match="no more"):
            list(feeds["train"])
        with pytest.raises(feedline.ServerLostError, match=r'feed "set\.train".* failed'):
            read_without_end(feeds["val"])
    eventually(lambda: not feedline.feeds())
    with sharing() as feeds:
        next(iter(feeds["train"]))
        assert run("stop", "set.val").returncode == 0
        with pytest.raises(feedline.ServerLostError, match=r'feed "set\.val".* was stopped'):
            read_without_end(feeds["train"])


def test_one_whose_epochs_are_over_leaves_the_others() -> None:
    with sharing(epochs={"train": 1}) as feeds:
        assert ids(feeds["train"]) == list(range(SAMPLES))
        feeds["train"].close()
        eventually(lambda: [one.name for one in feedline.feeds()] == ["set.val"])
        assert ids(feeds["val"]) == [-i for i in range(SAMPLES)]
        with pytest.raises(feedline.FeedEndedError, match=r"still serves set\.val"):
            feedline.share(BOTH, "set")


@pytest.mark.parametrize("mode", ["off", "local"])
def test_without_a_server(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", mode)
    feeds = feedline.share(BOTH, "set")
    assert ids(feeds["val"]) == [-i for i in range(SAMPLES)]
    assert ids(feeds["train"]) == list(range(SAMPLES))
    assert [one.name for one in feedline.feeds() if ".local-" not in one.name] == []


def shuffled() -> Any:
    return DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=12, shuffle=True)


def test_their_orders_do_not_depend_on_each_other() -> None:
    """A loader beside it that is read more, or less, changes nothing of a seeded order."""
    orders = []
    for epochs_of_val in (0, 3):
        with sharing({"train": shuffled, "val": shuffled}, seed=7, epochs_ahead=1) as feeds:
            for _ in range(epochs_of_val):
                list(feeds["val"])
            orders.append([int(i) for _ in range(2) for (batch,) in feeds["train"] for i in batch])
        eventually(lambda: not feedline.feeds())
    assert orders[0] == orders[1]
    assert orders[0][:SAMPLES] != orders[0][SAMPLES:]


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "none": ({}, {}, ValueError, "no function at all"),
    "not a function": ({"train": [1]}, {}, TypeError, "several by name"),
    "not a name": ({3: numbers}, {}, TypeError, "several by name"),
    "a name that can't be": ({"a/b": numbers}, {}, ValueError, "a/b"),
    "a keyword of another feed": (BOTH, {"ring": {"test": 9}}, ValueError, "'train', 'val'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_at_once(what: str) -> None:
    makers, keywords, error, words = WRONG[what]
    with pytest.raises(error, match=words):
        feedline.share(makers, "set", **keywords)
    assert feedline.feeds() == []
