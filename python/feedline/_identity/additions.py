"""What the user's code adds to lists, sets and dicts that exist already.

It counts once somebody reads it there: a tracker that notes the learning rate in a list of its own
changes nothing that is loaded. A container of which something was read before counts at once
whatever is added later, for loops and libraries may come back to what was read.
"""

from __future__ import annotations

import collections
import os
from typing import TYPE_CHECKING, Any

from feedline._identity.part import Part
from feedline._identity.values import (
    Atom,
    Derived,
    Known,
    Maybe,
    Table,
    constants,
    join,
    without_choices,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

_CONTAINERS = (list, set, dict, collections.deque, collections.OrderedDict, collections.defaultdict)


class Additions(Part):
    """By container: what is added to it, by key where that is known."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was added yet."""
        super().__init__(follower)
        self._tables: dict[int, Table] = {}
        # By address: containers, and their keys, of which something was read before.
        self._read: set[int | tuple[int, Any]] = set()
        # By address: the containers that hold a container, and those that hold one with additions.
        self._held_by: dict[int, set[int]] = {}
        self._holders: set[int] = set()
        # Whether all that is added counts at once from now on.
        self.count_all = False

    def add(self, base: Known, key: Maybe | None, value: Maybe) -> None:
        """``base[key] = value``, or ``base.append(value)``."""
        self._recorder.note_filled(base)
        keys = constants(key) if key else None
        one = keys[0] if keys and len(keys) == 1 else None
        value = join(value, key or ())
        address = id(base.value)
        is_read = address in self._read or (address, one) in self._read
        if base.value is os.environ and not is_read:
            # Libraries may read it; the user's own code is seen to.
            self._effects.outside += 1
            self._follower.uses.use_beside(value)
        elif not takes_additions(base.value) or is_read or self.count_all:
            self._effects.count += 1
            self._follower.uses.use(value)
            return
        self._effects.mutations += 1
        table = self._tables.setdefault(address, Table({}))
        self._note_holders(address)
        if keys is None or one is None:
            self._follower.uses.add_rest(table, value)
        else:
            self._follower.uses.add_entry(table, one, join(table.items.get(one, ()), value))

    def set_default(self, base: Known, key: Maybe, value: Maybe) -> Maybe:
        """``base.setdefault(key, value)``."""
        keys = constants(key)
        found = self._follower.containers.item(base, key)
        if keys is None or len(keys) != 1:
            self.add(base, key, value)
        elif keys[0] not in base.value and not without_choices(found):
            self._effects.mutations += 1
            self.keep(base, keys[0], value)
        return join(found, value)

    def keep(self, base: Known, key: Any, value: Maybe) -> None:
        """What a ``defaultdict`` makes for a key when that is read first."""
        self._tables.setdefault(id(base.value), Table({})).items[key] = value
        self._note_holders(id(base.value))

    def of_key(self, base: Known, key: Any) -> Maybe:
        """What a key may lead to since something was added."""
        # What is added under a key that isn't known may be found by this one.
        self._read |= {(id(base.value), key), (id(base.value), None)}
        table = self._tables.get(id(base.value))
        if table is None:
            return ()
        return join(table.items.get(key, ()), (Derived(table.rest),) if table.rest else ())

    def of_all(self, base: Atom | None) -> Maybe:
        """Anything that was added, and is added later."""
        if not isinstance(base, Known):
            return ()
        table = self._tables.get(id(base.value))
        if table is None:
            self.read_by_others(base.value)
            return ()
        return (Derived((table,)),)

    def read_by_others(self, value: Any) -> None:
        """Whatever is added to this counts at once."""
        if takes_additions(value):
            self._read.add(id(value))

    def use(self, value: Any) -> None:
        """All of a container counts."""
        table = self._tables.get(id(value))
        if table is None:
            self.read_by_others(value)
        else:
            self._follower.uses.use((table,))

    def meet(self, value: Any) -> bool:
        """A digest goes through a container: says whether one with additions is inside."""
        self.use(value)
        return id(value) in self._holders

    def note_element(self, element: Any, holder: Any) -> None:
        if takes_additions(element):
            self._held_by.setdefault(id(element), set()).add(id(holder))

    def _note_holders(self, address: int) -> None:
        for holder in self._held_by.get(address, set()) - self._holders:
            self._holders.add(holder)
            self._note_holders(holder)


def takes_additions(value: Any) -> bool:
    """Whether a container does nothing with what is added but to hold it."""
    return type(value) in _CONTAINERS
