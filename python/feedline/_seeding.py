"""Random generators that begin each epoch with a seed of its own.

A loader that shuffles or augments draws from generators of its process: Python's, NumPy's, torch's,
and those that a DataLoader or its sampler was given. Seeded from (seed, epoch) they draw the same
in an epoch whenever it is loaded, after a restart too, and whatever was drawn before.

Without a seed, ``_rng_state`` keeps the generators' states for a server that comes after a crash.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import sys
from typing import Any

from feedline._fork_guard import no_fork
from feedline._rng_state import generators_of


def seed_before_making(seed: int | None) -> None:
    """Seed the process's generators for whatever a function draws that makes a loader.

    Imports torch, if it is installed: it would draw its own seed when the function imports it.
    """
    if seed is not None:
        _seed_all(_derived(seed, "make"))


def seed_epoch(seed: int, epoch: int, loader: Any) -> None:
    """Seed what the loader draws from in this epoch."""
    _seed_all(_derived(seed, str(epoch)))
    with no_fork():
        for number, generator in enumerate(generators_of(loader)):
            if hasattr(generator, "manual_seed"):
                generator.manual_seed(_derived(seed, f"{epoch} of generator {number}"))


def give_own_generator(loader: Any) -> None:
    """Let a DataLoader draw from a generator of its own, if it was given none.

    Its order and its workers' seeds then don't depend on what else draws in this process.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        return
    torch = sys.modules["torch"]
    parts: list[Any] = [loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None)]
    without = [one for one in parts if getattr(one, "generator", 0) is None]
    if without:
        generator = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        for one in without:
            one.generator = generator


def _derived(seed: int, purpose: str) -> int:
    digest = hashlib.blake2b(f"{seed}: {purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def import_generators() -> tuple[Any, Any]:
    """NumPy, and torch or None.

    Called before a thread may seed: a child that is forked while a thread imports a module can't
    import it any more.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    return importlib.import_module("numpy"), importlib.import_module("torch") if has_torch else None


def _seed_all(number: int) -> None:
    numpy, torch = import_generators()
    with no_fork():
        random.seed(number)
        numpy.random.seed([number % 2**32, number >> 32])
        if torch is not None:
            torch.manual_seed(number)
