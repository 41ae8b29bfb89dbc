"""Orders of ``feedline.orders``: looked up anywhere, gone on with exactly, compared by name."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from typing import Any

import pytest
import torch
import torch.utils.data as data

import feedline
from dataloader.datasets import Numbers, drawing, equal, numbers
from feedline import DataLoader, orders
from support.commands import run

SAMPLES = 60
WEIGHTS = [float(number % 7) for number in range(SAMPLES)]


def mixture() -> orders.Mixture:
    """Two parts whose weights change in mid-epoch, and with an epoch."""
    parts = [orders.Shuffled(40), orders.Subset(20, range(0, 20, 2), shuffle=True)]
    return orders.Mixture(parts, [3, 1], 50, changes={(0, 33): [1, 1], 2: [0, 1]})


ORDERS = {
    "sequential": lambda: orders.Sequential(SAMPLES),
    "shuffled": lambda: orders.Shuffled(Numbers(SAMPLES)),
    "weighted": lambda: orders.Weighted(WEIGHTS, 45),
    "weighted once": lambda: orders.Weighted(torch.tensor(WEIGHTS), 45, replacement=False),
    "subset": lambda: orders.Subset(SAMPLES, [4, 8, 15, 16, 23, 42, 4, 59, 1], shuffle=True),
    "concatenation": lambda: orders.Concatenation([orders.Shuffled(20), 5, Numbers(35)]),
    "mixture": mixture,
}


def loader(order: orders.Order, batch_size: int = 7, num_workers: int = 0, **keywords: Any) -> Any:
    """A loader of numbered samples in this order."""
    dataset = Numbers(SAMPLES, drawing)
    return DataLoader(dataset, batch_size, sampler=order, num_workers=num_workers, **keywords)


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
def test_an_order_has_steps_that_can_be_named_and_made_again(make: Any) -> None:
    order = make()
    one = loader(order, seed=3, with_ids=True)
    for epoch in range(3):
        batches = list(one)
        assert len(batches) == len(one) == -(-len(order) // 7)
        for step, (batch, ids) in enumerate(batches):
            assert ids.tolist() == one.samples(epoch, step) == batch[0].tolist()
        assert equal(one.remake(epoch, 0), batches[0])
    elsewhere = loader(pickle.loads(pickle.dumps(order)), seed=3)
    assert elsewhere.samples(2, 0) == batches[0][1].tolist()


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_goes_on_exactly(make: Any, num_workers: int) -> None:
    whole = [loader(make(), SAMPLES, seed=3).samples(epoch, 0) for epoch in range(3)]
    first = loader(make(), seed=3)
    list(first)
    batches = iter(first)
    had = numbers(itertools.islice(batches, 1))
    state = json.loads(json.dumps(first.state_dict()))
    other = loader(make(), 4, num_workers)
    other.load_state_dict(state)
    assert had + numbers(other) == whole[1]
    assert numbers(other) == whole[2]


def test_an_order_is_a_sampler_for_any_loader() -> None:
    torch.manual_seed(5)
    order = orders.Shuffled(10)
    theirs = data.DataLoader(Numbers(10), 5, sampler=order)
    one, other = numbers(theirs), numbers(theirs)
    assert sorted(one) == sorted(other) == list(range(10))
    assert one != other
    order.set_epoch(0)
    assert list(order) == one
    assert len(order) == 10


def test_a_torch_batch_sampler_over_an_order_goes_on_exactly() -> None:
    def batched() -> DataLoader:
        sampler = data.BatchSampler(orders.Shuffled(SAMPLES), 7, drop_last=False)
        return DataLoader(Numbers(SAMPLES), batch_sampler=sampler)

    first = batched()
    list(first)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    rest = numbers(batches)
    torch.manual_seed(99)
    other = batched()
    other.load_state_dict(state)
    assert numbers(other) == rest


def test_a_mixtures_weights_change_without_losing_or_repeating_a_sample() -> None:
    parts = [orders.Shuffled(30), orders.Shuffled(30)]
    mixed = orders.Mixture(parts, [2, 1], 24)
    one = loader(mixed, 4, seed=8, num_workers=2)
    got = numbers(one)
    assert sum(number < 30 for number in got) == 16
    mixed.set_weights([1, 2], epoch=1)
    mixed.set_weights([1, 0], epoch=2, sample=6)
    got += numbers(one)
    assert sum(number < 30 for number in got) == 24
    got += numbers(one)
    of_first = [number for number in got if number < 30]
    assert len(set(of_first[:30])) == 30
    assert max(Counter(of_first).values()) == 2
    of_second = [number for number in got if number >= 30]
    assert len(set(of_second)) == len(of_second) <= 30
    again = orders.Mixture(parts, [2, 1], 24, changes={1: [1, 2], (2, 6): [1, 0]})
    plan = loader(again, 24, seed=8)
    assert [plan.samples(epoch, 0) for epoch in range(3)] == [got[:24], got[24:48], got[48:]]


def test_weights_cannot_change_for_what_is_made_already() -> None:
    mixed = orders.Mixture([30, 30], [2, 1], 24)
    batches = iter(loader(mixed, 4))
    next(batches)
    with pytest.raises(feedline.FeedValueError, match="sample 3 of epoch 0: its samples are made"):
        mixed.set_weights([1, 1], 0, 3)
    with pytest.raises(feedline.FeedValueError, match="no weight is larger than 0"):
        mixed.set_weights([0, 0], 0, 8)
    mixed.set_weights([0, 1], 0, 8)
    got = numbers(batches)
    assert all(number >= 30 for number in got[4:])
    assert any(number < 30 for number in got[:4])


def test_a_state_knows_a_mixtures_weights() -> None:
    def mixed(**changes: Any) -> orders.Mixture:
        return orders.Mixture([30, 30], [2, 1], 24, **changes)

    first = loader(mixed(), 4, seed=1)
    list(first)
    first.sampler.set_weights([1, 3], epoch=1)
    batches = iter(first)
    next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    rest = numbers(batches)
    other = loader(mixed(), 6)
    other.load_state_dict(state)
    assert numbers(other) == rest, "the weights up to the place are the state's"
    later = loader(mixed(changes={(1, 12): [1, 0]}), 5)
    with pytest.raises(feedline.FeedValueError, match="with other weights") as caught:
        loader(orders.Mixture([30, 30], [5, 1], 24)).load_state_dict(state)
    assert "the state's: 2 : 1, from sample 24 on 1 : 3" in str(caught.value)
    assert "this loader's: 5 : 1" in str(caught.value)
    later.load_state_dict(state)
    got = numbers(later)
    assert got[:8] == rest[:8]
    assert all(number < 30 for number in got[8:]), "what is to come is the script's"
    with pytest.raises(feedline.FeedValueError, match="of another order"):
        loader(orders.Mixture([20, 30], [2, 1], 24)).load_state_dict(state)


def test_states_of_other_orders_are_refused() -> None:
    others: list[Any] = [*ORDERS.values(), lambda: orders.Weighted(WEIGHTS[::-1], 45)]
    for one, other in itertools.permutations(others, 2):
        with pytest.raises(feedline.FeedValueError, match="of another order"):
            loader(other()).load_state_dict(loader(one(), seed=1).state_dict())


def refused(text: str, make: Any) -> None:
    """See it refused with these words."""
    with pytest.raises(feedline.FeedValueError, match=text):
        make()


def test_orders_that_cannot_be() -> None:
    refused("weight 1 is -2", lambda: orders.Weighted([1, -2]))
    refused("weight 0 is NaN", lambda: orders.Weighted([float("nan"), 1]))
    refused("no weight is larger than 0", lambda: orders.Weighted([0, 0]))
    refused("3 samples without replacement, where 2", lambda: orders.Weighted([1, 0, 1], 3, False))
    refused("num_samples is a whole number from 0 on, not -1", lambda: orders.Weighted([1], -1))
    refused("weights is a list of numbers", lambda: orders.Weighted([[1.0]]))  # type: ignore[list-item]
    refused(
        r"indices\[1\] is 9, and the dataset has samples 0 to 8", lambda: orders.Subset(9, [0, 9])
    )
    refused(r"indices\[0\] is -1", lambda: orders.Subset(9, [-1]))
    refused("indices is a list of whole numbers", lambda: orders.Subset(9, [0.5]))  # type: ignore[list-item]
    refused("there are no parts", lambda: orders.Concatenation([]))
    refused("2 weights for 1 datasets", lambda: orders.Mixture([4], [1, 1]))
    refused("dataset 1 has a weight, and no samples", lambda: orders.Mixture([4, 0], [1, 1]))
    refused("weight 0 is NaN", lambda: orders.Mixture([4, 3], [float("nan"), 1]))
    refused(
        "at sample 9 of an epoch of 8",
        lambda: orders.Mixture([4, 4], [1, 1], changes={(0, 9): [1, 0]}),
    )
    refused("neither a dataset with a length", lambda: orders.Shuffled(iter([])))  # type: ignore[arg-type]
    refused("an order of 61 samples .*, and Numbers has 60", lambda: loader(orders.Shuffled(61)))
    assert numbers(loader(orders.Mixture([4, 0], [1, 0], 6))) == [0, 1, 2, 3, 0, 1]
    assert list(loader(orders.Subset(9, []))) == []


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("wrong", [7, -8])
def test_a_sample_that_is_not_there_is_named(num_workers: int, wrong: int) -> None:
    rows = [torch.tensor(number) for number in range(7)]
    keywords: dict[str, Any] = {"num_workers": num_workers}
    batches = iter(DataLoader(rows, 2, sampler=[0, -1, 5, wrong, 1], **keywords))
    assert next(batches).tolist() == [0, 6]
    with pytest.raises(
        IndexError, match=f"list yielded sample {wrong}, and list has samples 0 to 6"
    ):
        next(batches)
    assert next(batches).tolist() == [1]


def test_a_name_shares_an_order() -> None:
    def named(order: orders.Order, **keywords: Any) -> Any:
        dataset = Numbers(SAMPLES, drawing)
        keywords = {"num_workers": 1, "seed": 4, "linger_secs": 0.1, **keywords}
        return DataLoader(dataset, 8, sampler=order, name="orders", **keywords)

    with named(mixture()) as one:
        alone = loader(mixture(), 8, seed=4)
        assert equal(list(one), list(alone))
        assert one.samples(5, 2) == alone.samples(5, 2)
        said = run("which", "orders", "--epoch", "5", "--step", "2", "--batch-size", "8")
        assert "a list that only its jobs know: a mixture of 2 datasets" in said.stderr
        refused("a shared loader's", lambda: one._arguments["sampler"].set_weights([1, 1], 9))
        with pytest.raises(feedline.FeedMismatchError, match="sampler"):
            named(orders.Mixture(mixture().parts, [3, 1], 50))


def test_the_command_line_knows_orders_without_a_list() -> None:
    order = orders.Mixture([orders.Shuffled(40), orders.Shuffled(20)], [3, 1], changes={4: [1, 1]})
    keywords: dict[str, Any] = {"name": "words", "seed": 4, "linger_secs": 0.1}
    with DataLoader(Numbers(SAMPLES), 8, sampler=order, **keywords) as one:
        said = run("which", "words", "--epoch", "5", "--step", "2", "--batch-size", "8")
        assert [int(line) for line in said.stdout.split()] == one.samples(5, 2)
