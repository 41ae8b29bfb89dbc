"""Samples that can't be cut, under a name: all jobs get the batches of the first one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import feedline
from dataloader.datasets import Numbers, equal
from feedline import DataLoader
from support.waiting import eventually

SAMPLES = 30


def told(number: int) -> Any:
    """Return a sample with a string."""
    return number, f"the {number}th"


def ragged(number: int) -> torch.Tensor:
    """Return samples of different lengths."""
    return torch.arange(number)


def listed(samples: list[Any]) -> Any:
    """Leave samples as they are."""
    return samples


def loader(batch_size: int = 8, **keywords: Any) -> Any:
    """One job's loader."""
    arguments = {"shuffle": True, "num_workers": 2, "seed": 4, "linger_secs": 0.1, **keywords}
    dataset = Numbers(SAMPLES, arguments.pop("make", told))
    return DataLoader(dataset, batch_size, name="whole", **arguments)


def alone(**keywords: Any) -> list[Any]:
    """Return the batches of a loader without a name."""
    dataset = Numbers(SAMPLES, keywords.pop("make", told))
    return list(DataLoader(dataset, 8, shuffle=True, seed=4, **keywords))


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


def test_all_jobs_get_them_at_one_batch_size() -> None:
    with loader() as one, loader(drop_last=True) as other, loader(with_ids=True) as third:
        first, second, numbered = iter(one), iter(other), iter(third)
        got, short, ids = [next(first)], [next(second)], [next(numbered)]
        got, short, ids = got + list(first), short + list(second), ids + list(numbered)
        assert equal(got, alone())
        assert equal(short, alone()[:-1]), "the last one has six samples"
        assert equal(ids, alone(with_ids=True))
        assert (len(one), len(other), len(third)) == (4, 3, 4)
        # Having dropped its last batch, it is in the next epoch as the others are.
        assert [job.state_dict()["epoch"] for job in (one, other)] == [1, 1]
        assert equal(next(iter(other))[0].tolist(), other.samples(1, 0))


def test_another_batch_size_is_refused_in_words_of_a_dataloader() -> None:
    with loader() as one:
        next(iter(one))
        with pytest.raises(feedline.BatchSizeError) as caught:
            loader(7)
    text = str(caught.value)
    assert 'feed "whole" cannot give batches of 7' in text
    assert "batch[1][0] is a str, without a batch dimension" in text
    assert "give this job batch_size=8 too" in text
    assert "attach" not in text


def test_batches_of_a_function_of_ones_own() -> None:
    keywords: dict[str, Any] = {"make": ragged, "collate_fn": listed}
    with loader(**keywords) as one, loader(**keywords) as other:
        first, second = iter(one), iter(other)
        got, too = [next(first)], [next(second)]
        assert equal(got + list(first), alone(**keywords))
        assert equal(too + list(second), alone(**keywords))


def test_ranks_are_dealt_them_in_turn() -> None:
    with loader(shard=(0, 2), with_ids=True) as one, loader(shard=(1, 2), with_ids=True) as other:
        steps = list(zip(iter(one), iter(other), strict=True))
        for step, ((_, first), (_, second)) in enumerate(steps[:-1]):
            assert [first.tolist(), second.tolist()] == [
                one.samples(0, step),
                other.samples(0, step),
            ]
        with pytest.raises(feedline.BatchSizeError, match="leave out drop_last"):
            loader(shard=(0, 2), drop_last=True)


def test_a_batch_samplers_batches_are_what_they_are() -> None:
    batches = [[0, 1, 2], [3], [4, 5]]
    keywords: dict[str, Any] = {"shuffle": None, "batch_sampler": batches, "batch_size": 1}
    with loader(make=int, with_ids=True, **keywords) as one:
        assert [ids.tolist() for _, ids in one] == batches


def test_a_state_goes_on_there() -> None:
    with loader() as one:
        batches = iter(one)
        next(batches)
        state = one.state_dict()
    with loader() as again:
        again.load_state_dict(state)
        assert equal(list(again), alone()[1:])
