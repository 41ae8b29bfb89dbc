"""What samples draw in threads: what processes would, or an error."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import feedline
from dataloader.datasets import Numbers, equal, numbers
from dataloader.test_threads import leaves_no_thread, threads
from feedline import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
__all__ = ["leaves_no_thread"]


def draws_of_torch(number: int) -> Any:
    """Draw in every way that datasets do, in different numbers of draws."""
    wide = torch.empty(1).uniform_(0.1, 2).item()
    where = torch.randint(0, 9, size=(1,)) if number % 3 else torch.zeros(1, dtype=torch.int64)
    order = torch.randperm(6)
    like = torch.rand_like(torch.zeros(2)) + torch.randn(2)
    kept = torch.bernoulli(torch.full((4,), 0.5)) * torch.zeros(4).normal_()
    own = np.random.default_rng(int(torch.randint(2**62, ()))).normal()
    return number, wide, where, order, like, kept, own, torch.normal(0.0, 1.0, (2,))


def test_draws_are_those_of_processes() -> None:
    def made(num_workers: int, kind: Any, **keywords: Any) -> list[Any]:
        loader = DataLoader(
            *(Numbers(60, draws_of_torch), 7),
            **(keywords | {"shuffle": True, "seed": 5, "num_workers": num_workers}),
            workers=kind,
        )
        return [*loader, *loader]

    alone = made(0, "threads")
    assert equal(made(2, "processes"), alone)
    assert equal(made(1, "threads"), alone)
    assert equal(made(3, "threads", persistent_workers=True), alone)


def test_what_a_function_that_collates_draws_is_that_of_processes() -> None:
    def collate(samples: list[int]) -> Any:
        return torch.tensor(samples), torch.rand(len(samples))

    made = [
        list(DataLoader(Numbers(20), 6, num_workers=2, workers=kind, seed=1, collate_fn=collate))
        for kind in ("threads", "processes")
    ]
    assert equal(*made)


def test_a_state_goes_on_with_the_other_kind() -> None:
    whole = threads(Numbers(60, draws_of_torch), 7, seed=2, shuffle=True)
    batches = iter(whole)
    next(batches)
    state = whole.state_dict()
    other = DataLoader(Numbers(60, draws_of_torch), 7, num_workers=1, shuffle=True)
    other.load_state_dict(state)
    assert equal(list(other), list(batches))


def test_the_jobs_own_generators_are_left_alone() -> None:
    def states() -> list[Any]:
        return [
            random.getstate(),
            np.random.get_state(legacy=False)["state"]["key"].tolist(),
            torch.get_rng_state().tolist(),
        ]

    def initialise(worker: int) -> None:
        random.seed(worker)
        np.random.seed(worker)
        torch.manual_seed(worker)

    loader = threads(Numbers(30, draws_of_torch), seed=3, worker_init_fn=initialise)
    before = states()
    list(loader)
    assert states() == before


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("Python's random", random.random),
    ("Python's random", lambda: random.gauss(0, 1)),
    ("NumPy's global generator", np.random.rand),
    ("NumPy's global generator", np.random.randn),
    ("torch's default generator", lambda: torch.manual_seed(3).initial_seed()),
    ("torch's default generator", lambda: torch.nn.functional.dropout(torch.ones(9)).sum()),
]


@pytest.mark.parametrize(("name", "draws"), REFUSED)
def test_draws_from_generators_that_threads_share_are_refused(
    name: str, draws: Callable[[], Any]
) -> None:
    loader = threads(Numbers(12, lambda number: (number, float(draws()) if number == 5 else 0.0)))
    batches = iter(loader)
    with pytest.raises(feedline.FeedValueError, match=f"samples of Numbers draw from {name}"):
        list(batches)


def test_what_the_job_draws_is_not_taken_for_the_datasets() -> None:
    """It draws while a sample is made, which is made again."""
    drew, begun = threading.Event(), threading.Event()
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        if number == 4:
            begun.set()
            drew.wait()
        return number

    batches = iter(threads(Numbers(12, make), 4, 1, seed=1))
    seen = numbers([next(batches)])
    begun.wait()
    pythons, numpys = random.Random(), np.random.RandomState()
    pythons.setstate(random.getstate())
    numpys.set_state(np.random.get_state())
    drawn = [random.random(), np.random.randn()]
    drew.set()
    seen += numbers(batches)
    drawn += [random.random(), np.random.randn()]
    assert seen == list(range(12))
    assert made.count(4) == 2
    assert drawn[0::2] == [pythons.random() for _ in range(2)], "the job's own go on"
    assert drawn[1::2] == [numpys.randn() for _ in range(2)]


def test_a_dataset_that_seeds_for_itself_is_refused() -> None:
    """Its draws would be another thread's, if that seeds in between."""

    def make(number: int) -> float:
        random.seed(3)
        return random.random()

    with pytest.raises(feedline.FeedValueError, match="Python's random"):
        list(threads(Numbers(12, make)))
