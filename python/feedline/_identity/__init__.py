"""What identifies a loader: everything that ``make_loader`` reaches, so that it can be compared.

Two jobs share a feed only if their functions would load the same. What each of them reaches is
found by reading its source (``follow``), down to single values: ``args.size``, not all of ``args``.
Each value becomes an entry with a digest that is the same in every process (``digests``); so does
the source of each function of the user's, and the version of each library.

Costs some milliseconds for an ordinary script; about a second for each GB of arrays, or million of
paths, that is reached. Never raises.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from feedline._identity.follow import Follower
from feedline._identity.reached import Entry

_log = logging.getLogger("feedline")

_MOST_DIFFERENCES = 6
_MOST_FRAMES = 150


class Identity(NamedTuple):
    """What a loader is known by, and what of it could not be compared."""

    entries: list[Entry]
    opaque: dict[str, str]


def identity_of(make_loader: Callable[[], Any]) -> Identity:
    """Everything that a function which makes a loader reaches."""
    inner = inspect.unwrap(make_loader) if hasattr(make_loader, "__wrapped__") else make_loader
    inner = getattr(inner, "__func__", inner)
    found: list[Identity] = []

    def follow() -> None:
        follower = Follower(getattr(inner, "__globals__", {}))
        try:
            follower.use(follower.call((follower.known(make_loader, "make_loader"),), [], {}))
            found.append(Identity(follower.entries(), dict(follower.opaque)))
        except Exception as error:  # RecursionError among them: a feed must not fail for it
            _log.debug("make_loader could not be followed", exc_info=True)
            what = {"make_loader": f"code that could not be followed ({error!r})"}
            found.append(Identity([], what))

    if _is_deep():
        # How far it gets must not depend on where it is asked for: a thread has a stack of its own.
        thread = threading.Thread(target=follow, name="feedline identity")
        thread.start()
        thread.join()
    else:
        follow()
    return found[0]


def _is_deep() -> bool:
    try:
        sys._getframe(_MOST_FRAMES)
    except ValueError:
        return False
    return True


def differences(
    here: Sequence[Entry], there: Sequence[Entry], server_pid: int
) -> tuple[list[str], list[str]]:
    """What two loaders differ in, and what they may differ in, a line each.

    Sources come first, for the rest may follow from them.
    """
    ours = {one.label: one for one in here}
    theirs = {one.label: one for one in there}
    found: dict[bool, list[str]] = {True: [], False: []}
    for label in sorted(
        {*ours, *theirs}, key=lambda label: (not label.startswith("source of"), label)
    ):
        our, their = ours.get(label), theirs.get(label)
        differs = how_differ(our, their)
        if differs is not None:
            name = label.removesuffix("=")
            nothing = "none of that name" if label.startswith("source of") else "not used"
            of_ours = _told(our, their) if our else nothing
            there_ = f"{_told(their) if their else nothing} in the running feed (pid {server_pid})"
            why = f" ({our.why})" if our is not None and our.why else ""
            found[differs].append(f"{name}: {there_}, {of_ours} here{why}")
    for lines in found.values():
        if len(lines) > _MOST_DIFFERENCES:
            more = len(lines) - _MOST_DIFFERENCES + 1
            lines[_MOST_DIFFERENCES - 1 :] = [f"and {more} more"]
    return found[True], found[False]


def how_differ(our: Entry | None, their: Entry | None) -> bool | None:
    """True if two entries of one label differ, False if they may, None if not."""
    one = our or their
    assert one is not None, "an entry of one of the two"
    if our is not None and their is not None and our.digest == their.digest:
        return None
    match one.kind:
        case "path":
            # Another file only if there is one: a word such as "train" leads nowhere.
            if our is None or their is None:
                return None
            return True if any(map(os.path.lexists, (our.digest, their.digest))) else None
        case "lazy":
            is_filled = our is not None and their is not None and our.digest and their.digest
            return True if is_filled else None
        case "unsure":
            return False
    return True


def _told(entry: Entry, other: Entry | None = None) -> str:
    return "another one" if other is not None and other.shown == entry.shown else entry.shown


__all__ = ["Entry", "Identity", "differences", "how_differ", "identity_of"]
