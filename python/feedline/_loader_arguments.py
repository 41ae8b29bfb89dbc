"""What a ``DataLoader`` may be given: values that can't be, or can't be yet, are refused here."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from feedline._errors import FeedValueError, explained, given
from feedline.orders import Order

SEEDS = 1 << 63
"""How many seeds there are."""

LATER = {
    "cache": None,
    "cache_dir": None,
    "native": "auto",
    "order": "common",
    "cluster": None,
    "placement": "local",
    "pool": None,
}
"""What is planned: its default, and nothing else yet."""


def refuse_later(keywords: dict[str, Any]) -> None:
    """Say of a keyword that it is not possible yet, or that there is none of that name."""
    for key, value in keywords.items():
        if key not in LATER:
            raise TypeError(f"DataLoader.__init__() got an unexpected keyword argument {key!r}")
        if value != LATER[key]:
            raise FeedValueError(f"{key}={value!r} is not possible yet\n  leave it out")


def check_workers(workers: str, num_workers: Any, dataset: Any, context: Any) -> None:
    """Refuse kinds of workers that there are not, and threads where there can be none."""
    if workers not in ("processes", "threads"):
        raise FeedValueError(f'workers={workers!r} is neither "processes" nor "threads"')
    if workers == "processes" or num_workers == 0:
        return
    if isinstance(dataset, IterableDataset):
        raise FeedValueError(
            f'workers="threads" is for datasets whose samples have numbers, and '
            f"{type(dataset).__name__} is an IterableDataset: torch's own workers iterate over it\n"
            "  leave it out"
        )
    if context is not None:
        raise FeedValueError(
            f"multiprocessing_context={context!r} says how processes are started, and "
            'workers="threads" starts none\n  leave one of them out'
        )


def is_iterable(dataset: Any) -> bool:
    """Whether its samples have no numbers."""
    return isinstance(dataset, IterableDataset)


def check_order(sampler: Any, dataset: Any) -> None:
    """Refuse an order of more samples than the dataset has."""
    if not isinstance(sampler, Order) or not hasattr(dataset, "__len__"):
        return
    if sampler.dataset_len > len(dataset):
        raise FeedValueError(
            f"sampler= is an order of {sampler.dataset_len} samples ({sampler}), "
            f"and {type(dataset).__name__} has {len(dataset)}"
        )


def checked_seed(seed: object) -> int:
    """Return the seed, if it is one."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise FeedValueError(explained(given("seed", seed), " is not a whole number"))
    number = int(seed.__index__())
    if not 0 <= number < SEEDS:
        what = f" is not a number from 0 to {SEEDS - 1}"
        raise FeedValueError(explained(given("seed", number), what))
    return number
