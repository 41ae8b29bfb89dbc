"""The states of a run's random generators at the beginnings of its epochs, kept in a file.

A loader that shuffles or augments draws from generators of its process. A server that is started
again after a crash, and goes on with the run of the one before it, goes back to the states that
that one had: an epoch that was begun comes in the same order, and those who go on in the middle of
it get exactly the rest. Which run a server belongs to is decided by ``_share_server``: a file of
states is never read by another run.

What is kept can be lost (a full disk): the feed goes on. Then the file is removed, so that the next
server finds none, and begins another run instead of another order.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import random
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feedline._core import folder
from feedline._fork_guard import no_fork

_log = logging.getLogger("feedline")

# Consumers are at most a few epochs apart; ``slowest_epoch`` tells of others.
_FEWEST_EPOCHS = 8

States = dict[int, dict[str, Any]]
"""By epoch: each generator's state, as it stands in the file."""


def path_of(name: str, run: int) -> Path:
    """Where a run's states are; ``names::runs`` removes them with the run."""
    return folder() / f"{name}.{run:016x}.rng"


def load(path: Path) -> States | None:
    """Read what a server of this run left; None, and a line in the log, if that can't be used."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            if owner != os.geteuid():
                raise PermissionError(f"it belongs to user {owner}")
            states = {int(epoch): kept for epoch, kept in json.load(file)["epochs"].items()}
        for kept in states.values():
            _restore(kept, random.Random(), _scratch("numpy"), _scratch("torch"), None)
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever is in the file, a feed can begin without it
        _log.warning(
            "%s cannot be used, and is replaced: %s\n"
            "  those who were in the middle of an epoch cannot go on with it",
            path,
            error or type(error).__name__,
        )
        return None
    return states


class RngStates:
    """Draws in an epoch what was drawn in it before, if a server of this run had begun it."""

    def __init__(
        self,
        path: Path,
        loader: Any,
        states: States,
        slowest_epoch: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Go on with these states; ``slowest_epoch`` tells which of them somebody still needs."""
        self._path = path
        self._own = generators_of(loader)
        self._states = dict(states)
        self._slowest_epoch = slowest_epoch
        self._has_failed = False

    def begin(self, epoch: int) -> None:
        """Go back to the states at this epoch's beginning, or write them down. Never raises."""
        if epoch in self._states:
            numpy, torch = _used("numpy"), _used("torch")
            try:
                with no_fork():
                    _restore(self._states[epoch], random, numpy, torch, self._own)
            except Exception as error:  # the generator is another one now
                _log.warning("epoch %d may come in another order than before: %r", epoch, error)
            return
        if self._states and epoch < max(self._states):
            _log.warning("epoch %d may come in another order than before: it was forgotten", epoch)
        with no_fork():
            self._states[epoch] = self._take_down()
        self._forget(epoch)
        try:
            self._write()
        except OSError as error:
            self._lose(error)

    def _forget(self, epoch: int) -> None:
        """Keep those that a restart could need: since the slowest consumer, and the last few."""
        slowest = self._slowest_epoch()
        oldest = epoch - _FEWEST_EPOCHS + 1
        oldest = oldest if slowest is None else min(oldest, slowest)
        self._states = {key: kept for key, kept in self._states.items() if key >= oldest}

    def _write(self) -> None:
        text = json.dumps({"epochs": self._states})
        new = self._path.with_suffix(".rng-new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(new, flags, 0o600), "w") as file:
            file.write(text)
        # A reader sees the old file or the new one, never half of it.
        os.replace(new, self._path)

    def _lose(self, error: OSError) -> None:
        for path in (self._path, self._path.with_suffix(".rng-new")):
            with contextlib.suppress(OSError):
                path.unlink()
        if not self._has_failed:
            self._has_failed = True
            _log.warning(
                "%s cannot be written: %s\n"
                "  the feed goes on; should its server be killed now, consumers that are in the "
                "middle of an epoch cannot come back to it",
                self._path,
                error.strerror or error,
            )

    def _take_down(self) -> dict[str, Any]:
        version, words, gauss = random.getstate()
        states: dict[str, Any] = {
            "random": {"version": version, "words": _text(array("I", words)), "gauss": gauss}
        }
        numpy, torch = _used("numpy"), _used("torch")
        if numpy is not None:
            states["numpy"] = _plain(numpy.random.get_state(legacy=False))
        if torch is not None:
            states["torch"] = _text(torch.get_rng_state().numpy())
            states["own"] = [_text(one.get_state().numpy()) for one in self._own]
        return states


def _restore(states: dict[str, Any], python: Any, numpy: Any, torch: Any, own: Any) -> None:
    kept = states["random"]
    words = array("I", _bytes(kept["words"]))
    python.setstate((kept["version"], tuple(words), kept["gauss"]))
    if numpy is not None and "numpy" in states:
        numpy.random.set_state(_rebuilt(states["numpy"]))
    if torch is not None and "torch" in states:
        torch.set_rng_state(_tensor(states["torch"]))
        for one, state in zip(own or (), states["own"], strict=False):
            one.set_state(_tensor(state))


def _used(module: str) -> Any:
    return sys.modules.get(module)


class _Scratch:
    """Generators of our own, to see whether they take a state."""

    def __init__(self, random: Any = None, set_rng_state: Any = None) -> None:
        self.random = random
        self.set_rng_state = set_rng_state


def _scratch(module: str) -> _Scratch | None:
    used = _used(module)
    if used is None:
        return None
    if module == "numpy":
        kind = type(used.random.mtrand._rand._bit_generator)
        return _Scratch(random=used.random.RandomState(kind()))
    return _Scratch(set_rng_state=used.Generator().set_state)


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "tobytes") and value.ndim > 0:
        return {"dtype": str(value.dtype), "bytes": _text(value)}
    return value.item() if hasattr(value, "item") else value


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"dtype", "bytes"}:
            return _used("numpy").frombuffer(_bytes(value["bytes"]), value["dtype"])
        return {key: _rebuilt(one) for key, one in value.items()}
    return value


def _tensor(text: str) -> Any:
    torch = _used("torch")
    return torch.frombuffer(bytearray(_bytes(text)), dtype=torch.uint8)


def _text(words: Any) -> str:
    return base64.b64encode(words.tobytes()).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def generators_of(loader: Any) -> list[Any]:
    """Find what a DataLoader and its samplers draw from, if they were given something."""
    found: list[Any] = []
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    for one in (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        generator = getattr(one, "generator", None)
        if hasattr(generator, "set_state") and not any(generator is other for other in found):
            found.append(generator)
    return found
