"""What each rank of a data-parallel job should get, worked out from the rules."""

from __future__ import annotations

from support.loaders import EPOCH
from support.reading import Reading


def steps_of(samples: int, batch_size: int, world: int, *, drop_last: bool = False) -> list[int]:
    """Cut an epoch into what all ranks take together."""
    full, tail = divmod(samples, batch_size * world)
    steps = [batch_size * world] * full
    if tail and not drop_last:
        if tail >= world:
            steps.append(tail)
        else:
            steps[-1] += tail
    return steps


def shares(epoch: int, steps: list[int], world: int, *, start: int = 0) -> list[Reading]:
    """Deal out each step to the ranks, in order; the first ones get what can't be divided."""
    ranks = [Reading([], [], True) for _ in range(world)]
    key = epoch * EPOCH + start
    for step in steps:
        for rank, reading in enumerate(ranks):
            size = step // world + (rank < step % world)
            reading.sizes.append(size)
            reading.keys.extend(range(key, key + size))
            key += size
    return ranks
