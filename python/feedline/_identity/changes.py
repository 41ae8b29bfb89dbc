"""What code has read and changed of what is made, so that a call is followed again after a change.

What a call returned holds for the next one with the same arguments, unless a field or an entry that
it has read was given another value in between.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# A field or an entry of an object, by the object's address and the name.
Place = tuple[int, Any]


class Changes:
    """Counts the changes of each place, and notes which places each call reads."""

    def __init__(self) -> None:
        """Nothing was read or changed yet."""
        self._versions: collections.Counter[Place] = collections.Counter()
        self._reads: dict[Place, int] = {}

    def read(self, owner: object, name: Any) -> None:
        place = (id(owner), name)
        self._reads.setdefault(place, self._versions[place])

    def change(self, owner: object, name: Any) -> None:
        self._versions[id(owner), name] += 1

    @contextmanager
    def noting_reads(self) -> Iterator[dict[Place, int]]:
        """The places that are read meanwhile, as they were then."""
        outer, self._reads = self._reads, {}
        try:
            yield self._reads
        finally:
            inner, self._reads = self._reads, outer
            self.read_again(inner)

    def read_again(self, reads: Mapping[Place, int]) -> None:
        """A call that isn't followed again has read what it read before."""
        for place, version in reads.items():
            self._reads.setdefault(place, version)

    def are_current(self, reads: Mapping[Place, int]) -> bool:
        return all(self._versions[place] == version for place, version in reads.items())
