"""``FEEDLINE_MODE=off``: the loader itself, in this process, with the methods of a feed.

The object stays what ``make_loader`` returned, class and all, so that a debugger sees nothing else.
Only what has no class that can be extended (a list, a generator function's batches) is wrapped.
"""

from __future__ import annotations

import copyreg
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

from feedline._loader import begin_epoch

_log = logging.getLogger("feedline")


class Epoch:
    """How often a loader was iterated before. A loader with this attribute keeps its own."""

    def __get__(self, loader: Any, _: type | None = None) -> int:
        return 0 if loader is None else max(loader._feedline_epoch, 0)


class FeedMethods:
    """A feed's methods, for a loader.

    Copied into a subclass of the loader's class: an instance can become one of a subclass, but not
    of one that has a second base.
    """

    name: str
    _feedline_base: Any
    _feedline_epoch = -1

    epoch = Epoch()

    def __iter__(self) -> Iterator[Any]:
        self._feedline_epoch += 1
        batches: Iterator[Any] = self._feedline_base.__iter__(self)
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch to samplers and datasets, as a feed's server does."""
        begin_epoch(self, but=self.set_epoch)(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The next epoch: a loader that has no states of its own begins with its first sample."""
        return {"feed": self.name, "epoch": self._feedline_epoch + 1, "sample": 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the epoch; the sample can't be restored."""
        self._feedline_epoch = int(state["epoch"]) - 1
        if state["sample"]:
            _log.warning(
                "FEEDLINE_MODE=off: the plain loader begins epoch %d anew, not at sample %d\n"
                "  FEEDLINE_MODE=local serves in this process, and goes on there",
                state["epoch"],
                state["sample"],
            )

    def stats(self) -> dict[str, Any]:
        """The keys of a feed's stats; None for what is not counted here."""
        counted = ("samples", "batches", "waited_secs", "loader_batches", "loader_batch_size")
        never = ("skipped", "left_out", "leases", "kept", "remaps")
        return {
            "name": self.name,
            "server_pid": os.getpid(),
            "epoch": self.epoch,
            "mode": "off",
            **dict.fromkeys(counted),
            **dict.fromkeys(never, 0),
        }

    def close(self) -> None:
        """Does nothing: the loader ends with its last reference."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A class that was made here can't be found by name."""
        make, args, *rest = self._feedline_base.__reduce_ex__(self, protocol)
        if make is copyreg.__newobj__ and args[0] is type(self):  # type: ignore[attr-defined]
            return _new, (self._feedline_base, self.name, *args[1:]), *rest
        return make, args, *rest


class Wrapped:
    """An iterable whose class can't be extended."""

    def __init__(self, loader: Any) -> None:
        """Keep the loader."""
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        return self._loader[index]

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # a copy whose attributes are not restored yet
            raise AttributeError(name)
        return getattr(self._loader, name)


def with_feed_methods(loader: Any, name: str) -> Any:
    """The same loader, as an instance of a class that has them too."""
    # A loader that is shared a second time has them already, perhaps under another name.
    base = getattr(type(loader), "_feedline_base", type(loader))
    try:
        loader.__class__ = _extended(base, name)
    except (TypeError, AttributeError):
        loader = Wrapped(loader)
        loader.__class__ = _extended(Wrapped, name)
    return loader


def _extended(base: type, name: str) -> type:
    own = {"__module__": base.__module__, "__doc__": base.__doc__}
    # Methods that the loader has itself stay.
    members = {
        key: member
        for key, member in vars(FeedMethods).items()
        if key.startswith("__") or not hasattr(base, key)
    }
    of_python = ("__dict__", "__weakref__", "__annotations__")
    members = {key: member for key, member in members.items() if key not in of_python}
    return type(base.__name__, (base,), {**members, **own, "name": name, "_feedline_base": base})


def _new(base: type, name: str, *args: Any) -> Any:
    made = _extended(base, name)
    return made.__new__(made, *args)
