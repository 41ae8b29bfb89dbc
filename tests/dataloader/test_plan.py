"""Orders and draws depend on the seed, the epoch and the sample, and on nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

import feedline
from dataloader.datasets import Numbers, drawing, equal, numbers
from feedline import DataLoader, orders

SAMPLES = 90


def drawn(
    num_workers: int, batch_size: int, make: Callable[[int], Any] = drawing
) -> dict[Any, Any]:
    """Return what each sample was in each of two epochs."""
    loader = DataLoader(
        Numbers(SAMPLES, make), batch_size, num_workers=num_workers, shuffle=True, seed=5
    )
    rows = {}
    for epoch in range(2):
        for number, *parts in loader:
            for at, sample in enumerate(number.tolist()):
                rows[epoch, sample] = [torch.as_tensor(part[at]).tolist() for part in parts]
    return rows


def test_draws_are_the_samples_own() -> None:
    alone = drawn(0, 10)
    assert len(alone) == 2 * SAMPLES
    assert drawn(1, 10) == drawn(2, 7) == drawn(3, 64) == alone
    assert all(alone[0, number] != alone[1, number] for number in range(SAMPLES))
    assert len({str(row) for row in alone.values()}) == 2 * SAMPLES


def test_a_generator_that_is_drawn_from_now_and_then_is_seeded_too() -> None:
    def make(number: int) -> Any:
        return (
            number,
            random.random() if number % 30 == 29 else 0.0,
            np.random.rand() * (number == 50),
        )

    assert drawn(0, 10, make) == drawn(2, 7, make) == drawn(1, 45, make)


def test_a_function_that_collates_may_draw() -> None:
    def collate(samples: list[int]) -> Any:
        return torch.tensor(samples), torch.rand(len(samples))

    def run(num_workers: int) -> list[Any]:
        loader = DataLoader(
            Numbers(SAMPLES), 9, num_workers=num_workers, seed=1, collate_fn=collate
        )
        return list(loader)

    assert equal(run(0), run(2))
    assert equal(run(1), run(2))


def test_the_jobs_own_generators_are_left_alone() -> None:
    def states() -> list[Any]:
        return [
            random.getstate(),
            np.random.get_state(legacy=False)["state"]["key"].tolist(),
            torch.get_rng_state().tolist(),
        ]

    loader = DataLoader(Numbers(SAMPLES, drawing), 10, shuffle=True, seed=3)
    before = states()
    list(loader)
    assert states() == before


def test_without_a_seed_torchs_counts() -> None:
    def order() -> list[int]:
        return numbers(DataLoader(Numbers(SAMPLES), 10, shuffle=True))

    torch.manual_seed(11)
    first = order()
    assert order() != first
    torch.manual_seed(11)
    assert order() == first
    generator = torch.Generator().manual_seed(4)
    loader = DataLoader(Numbers(SAMPLES), 10, shuffle=True, generator=generator)
    again = torch.Generator().manual_seed(4)
    assert numbers(loader) == numbers(
        DataLoader(Numbers(SAMPLES), 10, shuffle=True, generator=again)
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_any_step_can_be_named_and_made_again(num_workers: int) -> None:
    loader = DataLoader(
        Numbers(SAMPLES, drawing), 8, shuffle=True, seed=9, num_workers=num_workers, with_ids=True
    )
    later = loader.samples(7, 3)
    for epoch in range(2):
        for step, (batch, ids) in enumerate(loader):
            assert ids.tolist() == loader.samples(epoch, step) == batch[0].tolist()
            if step == 4:
                again, ids = loader.remake(epoch, step)
                assert equal(again, batch)
    loader.set_epoch(7)
    assert [ids.tolist() for _, ids in loader][3] == later
    with pytest.raises(IndexError, match="step 12 of an epoch with 12 steps"):
        loader.samples(0, 12)
    with pytest.raises(TypeError, match="sampler"):
        DataLoader(Numbers(9), sampler=[1, 2]).samples(0, 0)


def test_its_samplers_yield_its_order() -> None:
    """A framework that builds a loader of its own does so around them."""

    def loader(**keywords: Any) -> DataLoader:
        return DataLoader(Numbers(SAMPLES), **{"batch_size": 8, "seed": 9, **keywords})

    weighted = orders.Weighted([1.0, 2.0] * (SAMPLES // 2))
    for keywords in ({"shuffle": True}, {"sampler": weighted}):
        made = loader(**keywords)
        epochs = [[n for step in range(12) for n in made.samples(e, step)] for e in range(4)]
        assert [list(made.sampler), list(made.sampler)] == epochs[:2]
        assert numbers(made) == epochs[0], "to look ahead is not to begin"
        batches: Any = made.batch_sampler
        torchs: Any = data.DataLoader(made.dataset, batch_sampler=batches)
        batches.set_epoch(3)
        assert numbers(torchs) == epochs[3]
    made = loader(shuffle=True)
    assert numbers(made) == list(loader(shuffle=True).sampler)
    assert list(made.sampler) == [n for step in range(12) for n in made.samples(1, step)]
    torch.manual_seed(4)
    unseeded = list(loader(shuffle=True, seed=None).sampler)
    torch.manual_seed(4)
    assert unseeded == list(data.RandomSampler(range(SAMPLES)))
    assert len(list(loader(shuffle=True, batch_size=None).sampler)) == SAMPLES


@pytest.mark.parametrize("stop", [0, 1, 5, 13])
@pytest.mark.parametrize("keywords", [{"shuffle": True}, {}, {"drop_last": True}])
def test_a_state_goes_on_at_any_batch_size(stop: int, keywords: dict[str, Any]) -> None:
    dataset = Numbers(SAMPLES, drawing)
    whole = DataLoader(dataset, 7, seed=2, num_workers=1, **keywords)
    had = list(itertools.islice(whole, stop))
    state = whole.state_dict()
    for num_workers, batch_size in ((0, 5), (2, 11)):
        other = DataLoader(dataset, batch_size, num_workers=num_workers, **keywords)
        other.load_state_dict(state)
        assert other.state_dict() == state
        rest = list(other)
        epoch = DataLoader(dataset, SAMPLES, seed=2, shuffle=keywords.get("shuffle"))
        if stop == 13:
            epoch.set_epoch(1)
            had = []
        together, expected = numbers([*had, *rest]), numbers(epoch)
        dropped = SAMPLES - len(together)
        assert together == expected[: len(together)]
        assert 0 <= dropped < (batch_size if keywords.get("drop_last") else 1)
        assert other.state_dict()["epoch"] == state["epoch"] + 1


def test_a_state_of_a_samplers_order() -> None:
    weights = [1.0 + number % 5 for number in range(SAMPLES)]

    def loader() -> DataLoader:
        sampler = data.WeightedRandomSampler(weights, SAMPLES)
        return DataLoader(Numbers(SAMPLES), 7, sampler=sampler)

    whole = loader()
    batches = iter(whole)
    had = numbers(next(batches) for _ in range(3))
    state = whole.state_dict()
    rest = numbers(batches)
    torch.manual_seed(1234)
    other = loader()
    other.load_state_dict(state)
    assert numbers(other) == rest
    assert len(had) + len(rest) == SAMPLES


def test_a_state_of_another_order_is_refused() -> None:
    state = DataLoader(Numbers(10), shuffle=True, seed=1).state_dict()
    with pytest.raises(feedline.FeedValueError, match="of another order") as caught:
        DataLoader(Numbers(11), shuffle=True).load_state_dict(state)
    assert "shuffled, 10 samples" in str(caught.value)
    assert "shuffled, 11 samples" in str(caught.value)
    with pytest.raises(feedline.FeedValueError, match="is not the state_dict"):
        DataLoader(Numbers(10)).load_state_dict({"epoch": 1})


@pytest.mark.parametrize("seed", [-1, 1 << 63, True, "7"])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(feedline.FeedValueError, match="seed="):
        DataLoader(Numbers(10), seed=seed)


def test_what_is_not_there_yet_is_refused() -> None:
    for keyword, value in (("cache", "1GB"), ("order", "own"), ("native", "require")):
        with pytest.raises(feedline.FeedValueError, match=f"{keyword}=.* is not possible yet"):
            DataLoader(Numbers(10), **dict[str, Any]({keyword: value}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'workrs'"):
        DataLoader(Numbers(10), workrs=3)


def test_places_that_are_none() -> None:
    loader = DataLoader(Numbers(10), seed=1)
    state = loader.state_dict()
    for wrong in ({"sample": 11}, {"epoch": -1}, {"seed": -4}):
        with pytest.raises(feedline.FeedValueError):
            loader.load_state_dict({**state, **wrong})
    for call in (loader.set_epoch, lambda epoch: loader.samples(epoch, 0)):
        with pytest.raises(feedline.FeedValueError, match="epoch -1 is not possible"):
            call(-1)


def test_an_iterable_dataset_speaks_for_itself() -> None:
    class Stream(data.IterableDataset[int]):
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            while self.at < 6:
                self.at += 1
                yield self.at

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    first = DataLoader(Stream(), 2)
    assert next(iter(first)).tolist() == [1, 2]
    other = DataLoader(Stream(), 2)
    other.load_state_dict(first.state_dict())
    assert numbers(other) == [3, 4, 5, 6]
    with pytest.raises(feedline.FeedValueError, match="seed= is for datasets whose samples"):
        DataLoader(Stream(), seed=3)
