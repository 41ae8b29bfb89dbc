"""Who else may attach, or serve: names of users and groups become numbers here."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterable

from feedline._errors import FeedValueError

_HINT = '  write user names, uids and "@group": allow=("alice", 1001, "@lab")'


def resolve_allow(allow: Iterable[str | int]) -> tuple[list[int], list[int]]:
    """Give the uids and the gids that are meant; an error names what this machine doesn't know."""
    if isinstance(allow, (str, bytes)) or not isinstance(allow, Iterable):
        raise FeedValueError(f"allow={allow!r} is not a tuple or list\n{_HINT}")
    uids: set[int] = set()
    gids: set[int] = set()
    for who in allow:
        if isinstance(who, str) and who.startswith("@"):
            gids.add(_gid(who[1:]))
        elif isinstance(who, str):
            uids.add(_uid(who))
        elif isinstance(who, int) and not isinstance(who, bool) and 0 <= who < 2**32 - 1:
            uids.add(who)
        else:
            raise FeedValueError(f"allow names {who!r}, which is no user and no group\n{_HINT}")
    return sorted(uids), sorted(gids)


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise FeedValueError(
            f'allow names "{name}", and there is no such user here\n{_HINT}'
        ) from None


def _gid(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise FeedValueError(
            f'allow names "@{name}", and there is no such group here\n{_HINT}'
        ) from None
