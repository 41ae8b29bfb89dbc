"""Datasets of numbered samples, and what a loader made of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Numbers(Dataset[Any]):
    """Sample i is i, as a function of it says."""

    def __init__(self, samples: int, make: Callable[[int], Any] = lambda number: number) -> None:
        """Keep the function."""
        self.samples = samples
        self.make = make

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, number: int) -> Any:
        return self.make(number)


def fields(number: int) -> Any:
    """Return a sample of every kind that has a lane."""
    return {
        "tensor": torch.full((2, 3), number, dtype=torch.float32),
        "array": np.arange(3, dtype=np.int16) + number,
        "pair": (number, float(number) / 3),
        "flag": number % 2 == 0,
        "scalar": np.float32(number),
        "empty": torch.zeros(0, 4),
        "list": [torch.tensor(number), torch.arange(6).reshape(2, 3).t()[number % 3]],
    }


def drawing(number: int) -> Any:
    """Draw from all three generators."""
    return number, torch.rand(3), random.random(), np.random.rand()


def equal(one: Any, other: Any) -> bool:
    """Whether two batches are the same, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def numbers(batches: Iterable[Any]) -> list[int]:
    """Return the numbers in order, of batches of numbers or of tuples that begin with one."""
    tensors = [batch if isinstance(batch, torch.Tensor) else batch[0] for batch in batches]
    return [int(number) for tensor in tensors for number in tensor]
