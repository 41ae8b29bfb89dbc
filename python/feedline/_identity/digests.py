"""Digests of objects that are equal in two processes if, and only if, the objects are.

Addresses, hash seeds and the order of sets don't count. What has no content that could be read (an
open file, an object of native code without a state) is named in ``opaque``, and counts by its type.
Nothing is imported for it, and nothing is called but what copying and pickling would call too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline._identity.digest_walk import Walk
from feedline._identity.parts import Part
from feedline._identity.shown import type_name

# More objects than this are not looked at.
_MOST_OBJECTS = 2_000_000
# Told of what a digest only names; says whether it compares that itself.
Meet = Callable[[Any, str], bool]


class Digester:
    """Digests objects one after the other; tells ``meet`` of user's functions and objects."""

    def __init__(
        self,
        meet: Meet,
        meet_container: Callable[[Any], bool] = lambda value: False,
        root: str = "__main__",
    ) -> None:
        """Have ``meet(value, label)`` compare what a digest only names.

        ``meet_container`` says of a list, set or dict whether what it holds must be looked at one
        by one. Names of the module ``root`` are as those of a script.
        """
        self.meet = meet
        self.meet_container = meet_container
        self.root = root
        self._objects = 0
        # By address: what was digested already, and the parts of it.
        self._known: dict[int, tuple[Any, str, list[Part]]] = {}
        self.opaque: dict[str, str] = {}
        # By label: what tells nothing for sure if it differs, with what it is and its digest.
        self.unsure: dict[str, tuple[str, str]] = {}

    def digest(self, value: Any, label: str) -> str:
        """Whatever it is, and never an error."""
        if id(value) in self._known and self._known[id(value)][0] is value:
            return self._known[id(value)][1]
        walk = Walk(self)
        try:
            walk.add(value, label, 0)
            found = walk.hasher.hexdigest()
        except Exception as error:  # a property, a __getstate__ or a __repr__ that raises
            self.say_opaque(
                label, f"a {type_name(type(value))}, which raised {type(error).__name__}"
            )
            found = type_name(type(value))
        self._known[id(value)] = (value, found, walk.parts)
        return found

    def parts(self, value: Any) -> list[Part]:
        """The fields of an object that was digested, as far as they are told of."""
        return self._known[id(value)][2] if id(value) in self._known else []

    def say_opaque(self, label: str, what: str) -> None:
        self.opaque.setdefault(label, what)

    def counts(self, label: str) -> bool:
        self._objects += 1
        if self._objects == _MOST_OBJECTS:
            self.say_opaque(label, f"more than {_MOST_OBJECTS:,} objects, of which the rest")
        return self._objects < _MOST_OBJECTS
