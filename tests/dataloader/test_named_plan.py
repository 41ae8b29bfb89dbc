"""What a job of a name can tell of its steps, and where it goes on: at its own batch size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import feedline
from dataloader.datasets import Numbers, drawing, equal, numbers
from feedline import DataLoader, orders
from support.waiting import eventually

SAMPLES = 61


def loader(batch_size: int = 8, **keywords: Any) -> Any:
    """One job's loader."""
    arguments = {"num_workers": 0, "seed": 4, "linger_secs": 0.1, **keywords}
    arguments |= {} if "sampler" in arguments else {"shuffle": True}
    dataset = Numbers(arguments.pop("samples", SAMPLES), drawing)
    return DataLoader(dataset, batch_size, name=arguments.pop("name", "plans"), **arguments)


def alone(batch_size: int = 8, **keywords: Any) -> Any:
    """Return the same loader without a name."""
    arguments = {"seed": 4, **keywords}
    arguments |= {} if "sampler" in arguments else {"shuffle": True}
    return DataLoader(Numbers(SAMPLES, drawing), batch_size, **arguments)


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


def orders_of() -> dict[str, Any]:
    """Orders that have a list, and that have none."""
    dataset = Numbers(SAMPLES, drawing)
    half = orders.Shuffled(Numbers(30)), orders.Sequential(Numbers(31))
    return {
        "mixture": orders.Mixture(half, [2, 1], 40, changes={1: [1, 1]}),
        "weighted": orders.Weighted([1 + n % 3 for n in range(SAMPLES)], SAMPLES, False),
        "subset": orders.Subset(dataset, list(range(0, SAMPLES, 2)), shuffle=True),
    }


@pytest.mark.parametrize("which", ["mixture", "weighted", "subset"])
def test_steps_of_every_order_are_those_of_a_loader_without_a_name(which: str) -> None:
    with loader(7, sampler=orders_of()[which]) as one:
        plan = alone(7, sampler=orders_of()[which])
        for epoch in range(2):
            batches = list(one)
            assert len(batches) == len(one) == len(plan)
            for step, batch in enumerate(batches):
                assert numbers([batch]) == one.samples(epoch, step) == plan.samples(epoch, step)
        assert equal(one.remake(0, 2), list(plan)[2])


def test_without_the_dataset_steps_are_named_all_the_same() -> None:
    with loader() as one, DataLoader(None, 5, drop_last=True, name="plans") as other:
        plan = alone(5, drop_last=True)
        assert [other.samples(2, step) for step in range(12)] == [
            plan.samples(2, step) for step in range(12)
        ]
        with pytest.raises(IndexError, match="step 12 of an epoch with 12 steps"):
            other.samples(0, 12)
        with pytest.raises(feedline.FeedValueError, match="epochs are counted from 0"):
            other.samples(-1, 0)
        with pytest.raises(TypeError, match="its dataset is not known here"):
            other.remake(0, 0)
        assert other.seed == one.seed == 4
    listed = loader(sampler=orders_of()["subset"], name="listed")
    refused = pytest.raises(TypeError, match=r"can't be looked up without the dataset: .*a subset")
    with listed, DataLoader(None, 5, name="listed") as other, refused:
        other.samples(0, 0)


def test_without_a_seed_that_of_the_run_counts() -> None:
    with loader(seed=None) as one, DataLoader(None, 8, name="plans") as other:
        assert one.seed == other.seed
        assert other.samples(0, 3) == one.samples(0, 3) == numbers(list(one)[3:4])


def test_ranks_know_their_steps_with_a_tail() -> None:
    ranks = [loader(4, shard=(rank, 3), num_workers=2) for rank in range(3)]
    try:
        iterators = [iter(rank) for rank in ranks]
        steps = list(zip(*iterators, strict=True))
        for rank, loaded in enumerate(zip(*steps, strict=True)):
            plan = alone(4, shard=(rank, 3))
            assert len(loaded) == len(plan)
            for step, batch in enumerate(loaded):
                assert numbers([batch]) == ranks[rank].samples(0, step) == plan.samples(0, step)
                assert equal(ranks[rank].remake(0, step), batch)
        with DataLoader(None, 4, name="plans", shard=(1, 3)) as attached:
            assert attached.samples(5, 2) == ranks[1].samples(5, 2)
    finally:
        for rank in ranks:
            rank.close()


def test_arguments_of_workers_are_no_hindrance() -> None:
    keywords = {"num_workers": 2, "prefetch_factor": 3, "timeout": 30, "persistent_workers": True}
    with loader(multiprocessing_context="spawn", **keywords) as one:
        assert equal(next(iter(one)), one.remake(0, 0))


def test_states_go_from_a_name_to_none_and_back() -> None:
    with loader() as one:
        batches = iter(one)
        taken = [next(batches) for _ in range(3)]
        state = json.loads(json.dumps(one.state_dict()))
    plain = alone(5, seed=None)
    plain.load_state_dict(state)
    assert plain.seed == 4
    rest = iter(plain)
    taken.append(next(rest))
    state = json.loads(json.dumps(plain.state_dict()))
    with loader(6) as again:
        again.load_state_dict(state)
        taken += list(again)
        assert again.state_dict()["epoch"] == 1
    assert numbers(taken) == numbers(alone())
    assert torch.equal(torch.cat([b[1] for b in taken]), torch.cat([b[1] for b in alone()]))


def test_a_state_of_something_else_is_refused_with_both() -> None:
    with loader() as one:
        there = {"feed": "plans", "epoch": 1, "sample": 8}
        for order in ("seed 5: shuffled, 61 samples", "seed 4: shuffled, 62 samples"):
            with pytest.raises(feedline.FeedValueError) as caught:
                one.load_state_dict({**there, "order": order})
            assert f"the state's: {order}" in str(caught.value)
            assert "the feed's: seed 4: shuffled, 61 samples" in str(caught.value)
        ahead = {"seed": 4, "epoch": 0, "sample": 8, "order": "shuffled, 61 samples"}
        with pytest.raises(feedline.FeedValueError, match="in_order=False"):
            one.load_state_dict({**ahead, "ahead": [[16, 24]]})
        with pytest.raises(feedline.FeedValueError, match="is not the state_dict"):
            one.load_state_dict({"seed": 4})
        # An epoch's beginning is the same place in any order.
        one.load_state_dict({**there, "sample": 0, "order": "seed 5: shuffled, 61 samples"})
    named = {"feed": "x", "epoch": 0, "sample": 3, "order": "run 1f: DistributedSampler"}
    with pytest.raises(feedline.FeedValueError, match="another order"):
        alone().load_state_dict(named)
    with pytest.raises(feedline.FeedValueError, match="can't be looked up"):
        alone().load_state_dict({**named, "order": "run 1f"})
