"""Which part of each step this process gets, where the ranks of one job share a feed."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from typing import Any, Literal

from feedline._errors import FeedValueError

_log = logging.getLogger("feedline")

Shard = tuple[int, int] | Literal["auto"]

# What all ranks of one job have in common, and no other job has.
_OF_ONE_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_MOST_RANKS = 2**16
# What tells a process that it is one of several ranks.
_OF_RANKS = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR"),
    *("MASTER_PORT", "SLURM_PROCID", "SLURM_LOCALID"),
}
_OF_LAUNCHERS = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_")


def is_of_a_rank(key: str) -> bool:
    """Whether a variable of the environment belongs to one rank: a feed's server is no rank."""
    return key in _OF_RANKS or key.startswith(_OF_LAUNCHERS)


def resolve_shard(shard: object, *, several_machines: bool = False) -> tuple[int, int, int] | None:
    """Return the rank, the number of ranks, and a number that they share; None for a job of one."""
    if shard is None:
        return None
    if isinstance(shard, str):
        if shard != "auto":
            raise FeedValueError(f'shard="{shard}" is not (rank, world_size) or "auto"')
        if not several_machines:
            _check_machines()
        found = _from_torch() or _from_environment()
        if found is None:
            _log.warning(
                'shard="auto": there is neither a process group nor RANK and WORLD_SIZE in the '
                "environment: this process reads everything"
            )
            return None
        rank, world = found
        source = f"RANK={rank}, WORLD_SIZE={world}"
    else:
        rank, world = _checked_pair(shard)
        source = f"shard={shard!r}"
    if not 1 <= world <= _MOST_RANKS:
        raise FeedValueError(f"{source}: a job has 1 to {_MOST_RANKS} ranks, not {world}")
    if not 0 <= rank < world:
        raise FeedValueError(
            f"{source}: there is no rank {rank} of {world}\n"
            "  give (rank, world_size); ranks count from 0"
        )
    return None if world == 1 else (rank, world, _group())


def _checked_pair(shard: object) -> tuple[int, int]:
    try:
        rank, world = shard  # type: ignore[misc]
    except (TypeError, ValueError):
        rank = world = None
    return _checked_int(rank, shard), _checked_int(world, shard)


def _checked_int(number: Any, shard: object) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise FeedValueError(
            f"shard={shard!r} is not a pair of ints\n"
            '  give (rank, world_size), or "auto" to take both from the environment'
        )
    return int(number.__index__())


def _check_machines() -> None:
    local, world = os.environ.get("LOCAL_WORLD_SIZE"), os.environ.get("WORLD_SIZE")
    if local is not None and world is not None and local != world:
        raise FeedValueError(
            f'shard="auto": this job has {world} ranks, {local} of them on this machine, '
            "and a feed is on one machine\n"
            "  give each machine's loader its part of the data, and say "
            "shard=(local_rank, local_world_size)"
        )


def _from_torch() -> tuple[int, int] | None:
    """Ask the process group, where there is one: some launchers set no RANK."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_environment() -> tuple[int, int] | None:
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return None
    if rank is None or world is None:
        there, missing = ("WORLD_SIZE", "RANK") if rank is None else ("RANK", "WORLD_SIZE")
        raise FeedValueError(
            f'shard="auto": {there} is set in the environment, and {missing} is not\n'
            "  start the job with torchrun, or give shard=(rank, world_size)"
        )
    try:
        return int(rank), int(world)
    except ValueError:
        raise FeedValueError(
            f'shard="auto": RANK="{rank}" and WORLD_SIZE="{world}" are not both whole numbers\n'
            "  start the job with torchrun, or give shard=(rank, world_size)"
        ) from None


def _group() -> int:
    """Tell two jobs of the same size apart; the same in every process of one."""
    words = [os.environ.get(name) for name in _OF_ONE_JOB]
    if not any(words):
        return 0
    text = "\0".join(word or "" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
