"""The random generators' states at epochs' beginnings, kept in a file.

A loader that shuffles or augments draws from generators of its process. A server that is started
again after a crash goes back to the states that the one before it had, so that an epoch that was
begun comes in the same order, and those who go on in the middle of it get exactly the rest.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

# Consumers are at most a few epochs apart.
_MOST_EPOCHS = 8


class Dice:
    """Draws in an epoch what was drawn in it before, if it was begun before."""

    def __init__(self, path: Path, loader: Any) -> None:
        """Take over what the last server left, if it left anything."""
        self._path = path
        self._own = _generators_of(loader)
        self._states: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            self._states = pickle.loads(path.read_bytes())

    def begin(self, epoch: int) -> None:
        """Go back to the states at this epoch's beginning, or write them down."""
        if epoch in self._states:
            self._restore(self._states[epoch])
            return
        self._states[epoch] = self._take_down()
        for old in sorted(self._states)[:-_MOST_EPOCHS]:
            del self._states[old]
        new = self._path.with_suffix(".dice-new")
        new.write_bytes(pickle.dumps(self._states))
        os.replace(new, self._path)

    def _take_down(self) -> dict[str, Any]:
        states: dict[str, Any] = {"random": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            states["numpy"] = numpy.random.get_state()
        if torch is not None:
            states["torch"] = torch.get_rng_state().numpy()
            states["own"] = [one.get_state().numpy() for one in self._own]
        return states

    def _restore(self, states: dict[str, Any]) -> None:
        random.setstate(states["random"])
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and "numpy" in states:
            numpy.random.set_state(states["numpy"])
        if torch is not None and "torch" in states:
            torch.set_rng_state(torch.from_numpy(states["torch"]))
            for one, state in zip(self._own, states["own"], strict=False):
                one.set_state(torch.from_numpy(state))


def _generators_of(loader: Any) -> list[Any]:
    """Find what a DataLoader and its samplers draw from, if they were given something."""
    found: list[Any] = []
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    for one in (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        generator = getattr(one, "generator", None)
        if hasattr(generator, "set_state") and not any(generator is other for other in found):
            found.append(generator)
    return found
