"""Which other users may attach or serve: resolves names of users and groups to numbers."""

from __future__ import annotations

import grp
import operator
import pwd
from collections.abc import Iterable
from typing import Any

from feedline._errors import FeedValueError, explained, given, option

_HINT = (
    'write user names, uids and "@group": ',
    ("allow", "value", ("alice", 1001, "@lab")),
)


def resolve_allow(allow: Iterable[str | int]) -> tuple[list[int], list[int]]:
    """Resolve users and groups to uids and gids; an error names what this machine doesn't know."""
    if isinstance(allow, (str, bytes)) or not isinstance(allow, Iterable):
        raise FeedValueError(
            explained(given("allow", allow), " is not a tuple or list", hint=_HINT)
        )
    uids: set[int] = set()
    gids: set[int] = set()
    for who in allow:
        if isinstance(who, str) and who.startswith("@"):
            gids.add(_gid(who[1:]))
        elif isinstance(who, str):
            uids.add(_uid(who))
        else:
            uids.add(_checked_uid(who))
    return sorted(uids), sorted(gids)


def _checked_uid(who: Any) -> int:
    try:
        # NumPy's integers as well.
        uid = operator.index(who)
    except TypeError:
        uid = -1
    if isinstance(who, bool) or not 0 <= uid < 2**32 - 1:
        raise _unknown(repr(who), "which is no user and no group")
    return uid


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise _unknown(f'"{name}"', "and there is no such user here") from None


def _gid(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise _unknown(f'"@{name}"', "and there is no such group here") from None


def _unknown(who: str, why: str) -> FeedValueError:
    return FeedValueError(explained(option("allow"), f" names {who}, {why}", hint=_HINT))
