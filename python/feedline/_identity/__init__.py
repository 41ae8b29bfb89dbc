"""What identifies a loader: everything that ``make_loader`` reaches, so that it can be compared.

Two jobs share a feed only if their functions would load the same. What each of them reaches is
found by reading its source (``follow``), down to single values: ``args.size``, not all of ``args``.
Each value becomes an entry with a digest that is the same in every process (``digests``); so does
the source of each function of the user's, and the version of each library.

Costs some milliseconds for an ordinary script, and a second for each GB of arrays that are reached.
Never raises.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from feedline._identity.follow import Follower
from feedline._identity.reached import Entry

_log = logging.getLogger("feedline")

_MOST_DIFFERENCES = 6


class Identity(NamedTuple):
    """What a loader is known by, and what of it could not be compared."""

    entries: list[Entry]
    opaque: dict[str, str]


def identity_of(make_loader: Callable[[], Any]) -> Identity:
    """Everything that a function which makes a loader reaches."""
    inner = inspect.unwrap(make_loader) if hasattr(make_loader, "__wrapped__") else make_loader
    inner = getattr(inner, "__func__", inner)
    follower = Follower(getattr(inner, "__globals__", {}))
    try:
        follower.use(follower.call((follower.known(make_loader, "make_loader"),), [], {}))
        return Identity(follower.entries(), dict(follower.opaque))
    except Exception as error:  # RecursionError among them: a feed must not fail for it
        _log.debug("make_loader could not be followed", exc_info=True)
        return Identity([], {"make_loader": f"code that could not be followed ({error!r})"})


def differences(
    here: Sequence[Entry], there: Sequence[Sequence[str]], server_pid: int
) -> list[str]:
    """What two loaders differ in, a line each; sources first, for the rest may follow from them."""
    ours = {one.label: one for one in here}
    theirs = {one.label: one for one in (Entry(*values) for values in there)}
    found = []
    for label in sorted(
        {*ours, *theirs}, key=lambda label: (not label.startswith("source of"), label)
    ):
        our, their = ours.get(label), theirs.get(label)
        if our is None or their is None or our.digest != their.digest:
            name, of_ours = label.removesuffix("="), _told(our, their)
            there_ = f"{_told(their)} in the running feed (pid {server_pid})"
            found.append(f"{name}: {there_}, {of_ours} here")
    if len(found) > _MOST_DIFFERENCES:
        more = len(found) - _MOST_DIFFERENCES + 1
        found[_MOST_DIFFERENCES - 1 :] = [f"and {more} more"]
    return found


def _told(entry: Entry | None, other: Entry | None = None) -> str:
    if entry is None:
        return "not used"
    return "another one" if other is not None and other.shown == entry.shown else entry.shown


__all__ = ["Entry", "Identity", "differences", "identity_of"]
