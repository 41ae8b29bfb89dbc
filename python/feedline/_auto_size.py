"""``num_workers="auto"``: a number of workers that the pool finds by itself.

What decides is in Rust (``PoolSize``): it looks at the pool ten times a second, and says how many
workers there should be. ``Pool`` starts and retires them.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from feedline._core import PoolSize
from feedline._errors import FeedValueError
from feedline._measurement.usage import allowed_cores


class PoolState(NamedTuple):
    """How many workers a loader has, and why.

    ``most`` is how many there may be.
    """

    workers: int
    most: int
    why: str


class AutoWorkers(int):
    """What ``num_workers`` is of a loader whose pool finds the number itself.

    It is the number that the pool begins with, so that whatever reads it finds a number; a loader
    that is made with it finds its number by itself, too.
    """

    def __repr__(self) -> str:
        return f"auto ({int(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return AutoWorkers, (int(self),)


def number_of(num_workers: Any, dataset: Any) -> Any:
    """Return the number for torch; what is neither a number nor "auto" is refused."""
    if not isinstance(num_workers, str | AutoWorkers):
        return num_workers
    if isinstance(num_workers, str) and num_workers != "auto":
        raise FeedValueError(f'num_workers={num_workers!r} is not a number, nor "auto"')
    if isinstance(dataset, IterableDataset):
        raise FeedValueError(
            f'num_workers="auto" is for datasets whose samples have numbers: which samples each '
            f"worker of {type(dataset).__name__} has depends on how many there are\n"
            "  give a number"
        )
    return num_workers if isinstance(num_workers, AutoWorkers) else AutoWorkers(new().workers)


def new() -> PoolSize:
    """Begin with a worker for each core that this process may use.

    The ranks of a job have a pool each, and the cores of their machine in common.
    """
    return PoolSize(allowed_cores() / _ranks_here())


def _ranks_here() -> int:
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(ranks)) if ranks.isdecimal() else 1
