"""What the parts of a follower have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feedline._identity.follow import Follower


class Part:
    """One part of a follower: it does one thing, and asks the follower's others for the rest."""

    def __init__(self, follower: Follower) -> None:
        """Belong to a follower, which may not have all of its parts yet."""
        self._follower = follower
        self._effects = follower.effects
        self._changes = follower.changes
        self._recorder = follower.recorder
