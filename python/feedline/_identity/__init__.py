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
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from feedline._identity.entries import Entry, differences, how_differ
from feedline._identity.follow import Follower
from feedline._identity.module_state import State

_log = logging.getLogger("feedline")

_MOST_FRAMES = 150


class Identity(NamedTuple):
    """What a loader is known by, and what of it could not be compared."""

    entries: list[Entry]
    opaque: dict[str, str]
    # What it reads of modules that the server's process will import anew.
    module_state: State = {}  # noqa: RUF012


def identity_of(make_loader: Callable[[], Any]) -> Identity:
    """Everything that a function which makes a loader reaches.

    One that is ours says itself what it is known by: ``identified_by``, values by their labels.
    """
    values: dict[str, Any] | None = getattr(make_loader, "identified_by", None)
    inner = inspect.unwrap(make_loader) if hasattr(make_loader, "__wrapped__") else make_loader
    inner = getattr(inner, "__func__", inner)
    found: list[Identity] = []

    def follow() -> None:
        follower = Follower(getattr(inner, "__globals__", {}))
        try:
            if values is None:
                entries, opaque = follower.follow(make_loader)
            else:
                entries, opaque = follower.follow_values(values)
            found.append(Identity(entries, opaque, follower.module_state.found))
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


__all__ = ["Entry", "Identity", "State", "differences", "how_differ", "identity_of"]
