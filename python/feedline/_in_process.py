"""Batches that are made where they are wanted, without workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline._core import Draws
from feedline._pool_worker import key_number


class InProcess:
    """Makes batches in this process, with the draws that a worker would have."""

    def __init__(
        self, dataset: Any, collate_fn: Callable[[Any], Any], auto_collation: bool, seed: int
    ) -> None:
        """Keep what to make batches of."""
        self._draws = Draws(dataset, collate_fn, auto_collation, seed, key_number)

    def batch(self, keys: list[Any], epoch: int) -> Any:
        """Make and collate one batch. The process's own generators are as before afterwards."""
        return self._draws.batch(keys, epoch)
