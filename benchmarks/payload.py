"""The ready-made batches of the fan-out and tiny workloads, and what consumers do with a batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

import torch

Kind = Literal["images", "tiny"]
Work = Literal["take", "read"]

IMAGE_SHAPE = (64, 3, 224, 224)
IMAGE_BATCH_BYTES = math.prod(IMAGE_SHAPE) + 8 * IMAGE_SHAPE[0]
# 77 MB of images: more than the processor's caches hold, so that the copy reads from memory.
_DISTINCT_BATCHES = 8
_MOST_CHECKED = 1000


def prepare(kind: Kind) -> list[Any]:
    """Make a few distinct batches, which the producer goes round and round."""
    if kind == "tiny":
        return [torch.arange(8, dtype=torch.int64) + i for i in range(_DISTINCT_BATCHES)]
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randint(0, 256, IMAGE_SHAPE, dtype=torch.uint8, generator=generator),
            torch.randint(0, 1000, IMAGE_SHAPE[:1], dtype=torch.int64, generator=generator),
        )
        for _ in range(_DISTINCT_BATCHES)
    ]


def batch_bytes(batch: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(batch))


def leaves(batch: Any) -> tuple[torch.Tensor, ...]:
    return (batch,) if isinstance(batch, torch.Tensor) else tuple(batch)


class Endless:
    """A loader without an end: prepared batches, again and again, in one endless epoch."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(self.batches)


def checked(batches: Iterator[Any], expected: list[Any], ring_bytes: int) -> Iterator[Any]:
    """Compare a whole turn of the ring, byte for byte, before the clock starts; then step aside.

    A contestant that hands out something else has no rate. And a consumer's mapping is then filled
    in, as it is in any job that reads what it takes: to look for private pages in memory that was
    never touched would cost next to nothing.
    """
    turn = ring_bytes // batch_bytes(expected[0])
    for index in range(min(turn, _MOST_CHECKED) + len(expected)):
        wanted, batch = expected[index % len(expected)], next(batches)
        if not all(map(torch.equal, leaves(batch), leaves(wanted))):
            raise ValueError(f"batch {index} is not what the producer was given")
    return batches


def read_every_byte(batch: Any) -> None:
    """Sum each leaf as 64-bit integers, which reads about as fast as memory delivers."""
    for leaf in leaves(batch):
        leaf.view(torch.int64).sum()
