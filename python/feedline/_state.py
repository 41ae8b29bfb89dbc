"""Where a loader that can resume was, kept in a file: a server that restarts goes on from there."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
from pathlib import Path
from typing import Any

from feedline._errors import FeedValueError, explained, given, option

_log = logging.getLogger("feedline")

Place = tuple[int, int]
"""An epoch, and how many of its samples came before."""

# Asking the loader for its state may cost this share of the time.
_SHARE = 0.02
_WRITE_EVERY_SECS = 0.1
# Beyond this, every other state is dropped: a restart then begins a little earlier.
_MOST_STATES = 64


class StateFile:
    """The loader's state at the newest place that no consumer is behind."""

    def __init__(self, path: str | os.PathLike[str], loader: Any, name: str) -> None:
        """Check that the loader can be asked, and the file be written."""
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(loader, method, None)):
                raise FeedValueError(
                    explained(
                        *(option("state_file"), " needs a loader that can resume, and "),
                        f"{type(loader).__name__} has no {method}()",
                        hint="use torchdata's StatefulDataLoader, or leave it out",
                    )
                )
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir():
            raise self._unusable(f": {self._path.parent} is not a folder", "make it first")
        self._loader = loader
        self._name = name
        self._states: list[tuple[Place, bytes]] = []
        self._needed: Place = (0, 0)
        self._written: tuple[Place, set[int]] | None = None
        self._begun: dict[int, bytes] = {}
        self._has_begun = False
        self._before = b""
        self._is_stale = False
        self._ask_at = self._write_at = 0.0
        self.samples: int | None = None
        """Of an epoch, where the loader can't tell and an earlier server had counted them."""
        self.run: str | None = None
        """What the order of the epochs is known by; an earlier server's, if the loader goes on."""

    def load(self) -> Place | None:
        """Give the loader what an earlier server kept, and tell where that was."""
        try:
            self._check_owner()
            kept = pickle.loads(self._path.read_bytes())
            self.samples = kept["samples"]
            feed, place, state = kept["feed"], (kept["epoch"], kept["sample"]), kept["state"]
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unusable(f" cannot be read: {error}", "delete it to start anew") from error
        if feed != self._name:
            own = f' is of feed "{feed}", not of "{self._name}"'
            raise self._unusable(own, "give each feed a file of its own")
        self._loader.load_state_dict(pickle.loads(state))
        self.run = kept.get("run")
        self._states.append((place, state))
        self._begun = kept["begun"]
        # Until they are begun again, they are kept for yet another server.
        self._states += [((epoch, 0), later) for epoch, later in self._begun.items()]
        self._needed, self._written = place, (place, set(self._begun))
        return place

    def _unusable(self, why: str, hint: str) -> FeedValueError:
        return FeedValueError(explained(given("state_file", str(self._path)), why, hint=hint))

    def begin(self, epoch: int) -> None:
        """Before an epoch begins: if an earlier server had begun it, it must be the same again."""
        state = self._begun.pop(epoch, None)
        if state is not None:
            self._loader.load_state_dict(pickle.loads(state))
        # Not right after a load: asking for the state may change what a loader does next.
        asks = self._has_begun and state is None
        self._before = self._ask() if asks else b""
        self._has_begun = True

    def _ask(self) -> bytes:
        """Give the loader's state as it is now; the object may change when the loader goes on."""
        return pickle.dumps(self._loader.state_dict())

    def _check_owner(self) -> None:
        owner = self._path.stat().st_uid
        if owner not in (os.geteuid(), 0):
            raise PermissionError(f"it belongs to user {owner}, whose code it could run")

    def mark(self, head: Place, oldest: Place, needed: Place | None) -> None:
        """Note the loader's state at the head; keep the one that a restart would need.

        A late joiner may need an older one than anybody did before: those are kept for as long as
        the feed keeps their samples.
        """
        now = time.monotonic()
        if now >= self._ask_at or head[1] == 0:
            state = self._ask()
            # If iter() is a generator, nothing of it has run yet: this is the last epoch's end.
            if head[1] > 0 or state != self._before:
                # Epochs that an earlier server had begun are later, until they are begun again.
                later = [entry for entry in self._states if entry[0] > head]
                before = [entry for entry in self._states if entry[0] < head]
                self._states = [*before, (head, state), *later]
            after = time.monotonic()
            self._ask_at = after + (after - now) / _SHARE
        while len(self._states) > 1 and self._states[1][0] <= oldest:
            del self._states[0]
        if len(self._states) > _MOST_STATES:
            # States at an epoch's beginning are needed whatever comes between them.
            thinned = [entry for entry in self._states[1:-1] if entry[0][1] == 0]
            thinned += [entry for entry in self._states[1:-1] if entry[0][1]][::2]
            self._states[1:-1] = sorted(thinned, key=lambda entry: entry[0])
        self._needed = self._needed if needed is None else needed
        is_behind = self._written is not None and self._needed < self._written[0]
        # At once, before any consumer has a sample of a new epoch.
        if is_behind or head[1] == 0 or now >= self._write_at:
            self._write()

    def _write(self) -> None:
        good = [entry for entry in self._states if entry[0] <= self._needed]
        if not good:
            return
        (epoch, sample), state = good[-1]
        # A loader's later epochs need not follow from a state in the middle of this one.
        begun = {e: later for (e, i), later in self._states if i == 0 and e > epoch}
        if self._written == ((epoch, sample), set(begun)):
            return
        kept = {
            "feed": self._name,
            "epoch": epoch,
            "sample": sample,
            "samples": self.samples,
            "run": self.run,
            "state": state,
            "begun": begun,
        }
        beside = self._path.with_name(f".{self._path.name}.new")
        self._write_at = time.monotonic() + _WRITE_EVERY_SECS
        try:
            beside.write_bytes(pickle.dumps(kept))
            # A reader sees the old file or the new one, never half of it.
            beside.replace(self._path)
        except OSError as error:
            if not self._is_stale:
                _log.warning('feed "%s": its state cannot be written: %s', self._name, error)
            self._is_stale = True
            return
        self._written, self._is_stale = ((epoch, sample), set(begun)), False

    def close(self, *, is_done: bool) -> None:
        """At the feed's end: nothing to go on with if all epochs are done."""
        if is_done:
            with contextlib.suppress(OSError):
                self._path.unlink()
        else:
            self._write()
