"""``with_ids=True`` with a name: who asks gets each sample's number, wherever batches are cut."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import feedline
from dataloader.datasets import Numbers, equal
from feedline import DataLoader
from support.waiting import eventually

SAMPLES = 60


def tenfold(number: int) -> Any:
    """Return a sample that is not its number, and says which it is."""
    return 10 * number, torch.full((3,), number)


def loader(**keywords: Any) -> Any:
    """One job's loader."""
    arguments = {"shuffle": True, "num_workers": 2, "seed": 4, "linger_secs": 0.1, **keywords}
    dataset = arguments.pop("dataset", Numbers(SAMPLES, tenfold))
    size, name = arguments.pop("batch_size", 8), arguments.pop("name", "ids")
    return DataLoader(dataset, size, name=name, **arguments)


def checked(batches: Iterable[Any]) -> list[list[int]]:
    """Return the batches' sample numbers; each is that of the sample beside it."""
    found = []
    for (tens, rows), ids in batches:
        assert ids.dtype == torch.int64
        assert torch.equal(tens, 10 * ids)
        assert torch.equal(rows, ids[:, None].expand(-1, 3))
        found.append(ids.tolist())
    return found


def flat(lists: Iterable[list[int]]) -> list[int]:
    """Return all numbers of all batches."""
    return list(itertools.chain.from_iterable(lists))


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


def test_each_job_gets_them_at_its_own_batch_size_or_not_at_all() -> None:
    with loader(with_ids=True) as one, loader(batch_size=7, drop_last=True) as other:
        with feedline.attach("ids", batch_size=9, with_ids=True) as third:
            first, second, plain = iter(one), iter(other), iter(third)
            got = [next(first)]
            bare = [next(second)]
            too = [next(plain)]
            got, bare, too = got + list(first), bare + list(second), too + list(plain)
        ids = checked(got)
        assert ids == [one.samples(0, step) for step in range(8)]
        all_of_them = flat(ids)
        assert flat(checked(too)) == all_of_them
        assert len(bare) == 8
        assert [len(batch) for batch in bare] == [2] * 8, "batches alone"
        assert torch.cat([tens for tens, _ in bare]).tolist() == [10 * n for n in all_of_them[:56]]
        alone = DataLoader(Numbers(SAMPLES, tenfold), 8, shuffle=True, seed=4, with_ids=True)
        assert equal(list(alone), got), "as without a name, bit for bit"
        assert equal(one.remake(0, 3), got[3])


def test_late_comers_and_those_who_resume_get_them() -> None:
    with loader(with_ids=True, history=1.0, num_workers=0) as one:
        batches = iter(one)
        seen = checked(next(batches) for _ in range(5))
        with loader(with_ids=True, batch_size=5) as late:
            from_the_start = iter(late)
            early = checked(next(from_the_start) for _ in range(3))
            assert flat(early) == flat(seen)[:15]
            state = late.state_dict()
        with loader(with_ids=True, batch_size=11) as again:
            again.load_state_dict(state)
            rest = checked(again)
        seen += checked(batches)
        assert flat(early) + flat(rest) == flat(seen)


def test_one_that_was_overtaken_gets_those_of_what_is_left() -> None:
    keywords = {"lag": "skip", "num_workers": 0, "history": 0.0, "ring": 64}
    dataset = Numbers(5000, tenfold)
    with (
        loader(dataset=dataset, with_ids=True, **keywords) as slow,
        loader(dataset=dataset, with_ids=True, **keywords) as fast,
    ):
        behind = iter(slow)
        seen = checked([next(behind)])
        whole = flat(checked(fast))
        assert sorted(whole) == list(range(5000))
        seen += checked(behind)
        assert slow.stats()["skipped"] > 0
        assert flat(seen)[:8] == whole[:8]
        assert set(flat(seen)) <= set(range(5000))


def test_ranks_get_their_own() -> None:
    with (
        loader(with_ids=True, shard=(0, 2)) as one,
        loader(with_ids=True, shard=(1, 2)) as other,
    ):
        first, second = iter(one), iter(other)
        steps = list(zip(first, second, strict=True))
        ids = [(checked([a])[0], checked([b])[0]) for a, b in steps]
        for step, pair in enumerate(ids):
            assert list(pair) == [one.samples(0, step), other.samples(0, step)]
            assert [checked([rank.remake(0, step)])[0] for rank in (one, other)] == list(pair)
        assert sorted(flat((a + b for a, b in ids))) == list(range(SAMPLES))


def test_batches_that_are_overtaken_bring_their_own() -> None:
    with loader(with_ids=True, in_order=False, dataset=Numbers(SAMPLES, sometimes_slow)) as one:
        assert sorted(flat(checked(one))) == list(range(SAMPLES))


def sometimes_slow(number: int) -> Any:
    """Give the other worker time to be faster."""
    if number % 8 == 0:
        sum(range(300_000))
    return tenfold(number)


def test_after_a_restart_of_the_server() -> None:
    keywords = {"with_ids": True, "reconnect_secs": 60, "ring": 64, "history": 0.0}
    with loader(dataset=Numbers(2000, tenfold), **keywords) as one:
        batches = iter(one)
        seen = checked(next(batches) for _ in range(3))
        os.kill(one.stats()["server_pid"], signal.SIGKILL)
        seen += checked(batches)
        assert flat(seen) == [n for step in range(250) for n in one.samples(0, step)]


def test_a_sampler_of_ones_own_and_keys_that_are_no_numbers() -> None:
    order = list(range(SAMPLES - 1, -1, -1))
    with loader(shuffle=None, sampler=order, with_ids=True) as one:
        assert flat(checked(one)) == order


def by_letter(key: str) -> int:
    """Return a sample of a dataset whose keys are strings."""
    return ord(key)


def test_keys_that_are_no_numbers_disturb_only_those_who_ask() -> None:
    keywords = {"shuffle": None, "sampler": ["a", "b", "c"], "batch_size": 2, "num_workers": 0}
    dataset = Numbers(3, by_letter)  # type: ignore[arg-type]
    with (
        loader(dataset=dataset, **keywords) as one,
        loader(dataset=dataset, with_ids=True, **keywords) as other,
    ):
        first, second = iter(one), iter(other)
        assert next(first).tolist() == [97, 98]
        with pytest.raises(feedline.FeedValueError, match="no numbers"):
            next(second)
        assert [batch.tolist() for batch in first] == [[99]]


def doubled(samples: list[Any]) -> torch.Tensor:
    """Make two rows of each sample."""
    return torch.tensor([row for tens, _ in samples for row in (tens, tens + 1)])


def summed(samples: list[Any]) -> torch.Tensor:
    """Make a row of each sample."""
    return torch.tensor([[tens, rows.sum()] for tens, rows in samples])


def test_a_function_of_ones_own_that_collates() -> None:
    with (
        loader(collate_fn=doubled) as one,
        loader(collate_fn=doubled, with_ids=True) as other,
    ):
        first, second = iter(one), iter(other)
        got = next(first)
        assert got.tolist() == [10 * n + more for n in one.samples(0, 0)[:4] for more in (0, 1)]
        with pytest.raises(feedline.FeedValueError, match="more or fewer rows"):
            next(second)
    with loader(collate_fn=summed, with_ids=True, name="sums") as one:
        batch, ids = next(iter(one))
        assert batch[:, 0].tolist() == [10 * n for n in ids.tolist()]


def test_samples_that_are_not_collated_have_one() -> None:
    keywords = {"batch_size": None, "shuffle": False, "num_workers": 0, "with_ids": True}
    with loader(**keywords) as one:
        alone = DataLoader(Numbers(SAMPLES, tenfold), None, with_ids=True)
        assert equal(list(one), list(alone))


class Endless(IterableDataset[int]):
    """No sample of it has a number."""

    def __iter__(self) -> Any:
        return iter(range(20))


def test_they_are_refused_where_there_are_none() -> None:
    with pytest.raises(feedline.FeedValueError, match="Endless is an IterableDataset"):
        loader(dataset=Endless(), shuffle=None, with_ids=True, seed=None)
    keywords = {"dataset": Endless(), "shuffle": None, "seed": None, "num_workers": 0}
    with loader(**keywords) as one:
        assert torch.cat(list(one)).tolist() == list(range(20))
        with pytest.raises(feedline.FeedValueError, match="without sample numbers"):
            DataLoader(None, 8, name="ids", with_ids=True)
    refused = pytest.raises(feedline.FeedValueError, match="without sample numbers")
    with feedline.Server([torch.zeros(4)], "plain"), refused:
        feedline.attach("plain", with_ids=True)


def test_nobody_sees_them_who_does_not_ask() -> None:
    """Neither in what is shown of batches, nor in a transform."""
    with loader(with_ids=True, transform=negated) as one:
        (tens, _), ids = next(iter(one))
        assert torch.equal(tens, -10 * ids)


def negated(batch: Any) -> Any:
    """Take a batch, which is a pair, without its numbers."""
    tens, rows = batch
    return -tens, rows


def test_switched_off_it_is_a_loader_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "off")
    alone = loader(num_workers=0, with_ids=True, drop_last=True, batch_size=7)
    assert [len(ids) for ids in checked(alone)] == [7] * 8
    monkeypatch.setenv("FEEDLINE_MODE", "local")
    with loader(num_workers=0, with_ids=True) as local:
        assert sorted(flat(checked(local))) == list(range(SAMPLES))


def test_in_json_a_state_has_nothing_of_them() -> None:
    with loader(with_ids=True) as one:
        batches = iter(one)
        next(batches)
        assert json.loads(json.dumps(one.state_dict()))["sample"] == 8
