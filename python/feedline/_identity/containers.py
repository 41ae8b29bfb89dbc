"""Items and elements of lists, dicts and namespaces."""

from __future__ import annotations

import argparse
import collections
import os
from collections.abc import Mapping
from typing import Any

from feedline._identity.command_line import CommandLine
from feedline._identity.objects import is_plain_class, is_plain_object
from feedline._identity.part import Part
from feedline._identity.plain import is_plain_data
from feedline._identity.values import (
    Atom,
    Choice,
    Derived,
    Items,
    Known,
    LibraryMethod,
    Made,
    Maybe,
    Table,
    absent,
    choices,
    chosen,
    constants,
    content_of,
    derived,
    is_constant,
    join,
    without_choices,
)
from feedline._shard import is_of_a_rank

# What does nothing with what it is given.
_NOTHING = Known(id, "")
# A list with more elements than this is used as a whole.
_MOST_ELEMENTS = 32
_MOST_KEYS = 200
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class Containers(Part):
    """What is found by a key or an iteration, and what is put there."""

    def item(self, base: Atom, key: Maybe) -> Maybe:
        keys = constants(key)
        if keys is not None and not all(isinstance(one, str | int | bytes | None) for one in keys):
            keys = None
        # Which one it is counts once that is used.
        which = tuple(one for one in key if not is_constant(one))
        if isinstance(base, Choice):
            return chosen((base,), which)
        if isinstance(base, Items):
            self._changes.read(base, ...)
            count = len(base.items)
            if keys and all(isinstance(one, int) and -count <= one < count for one in keys):
                return chosen(join(*(base.items[one] for one in keys)), which)
            self._follower.uses.use_order(base)
            return chosen(join(*base.items), which)
        if isinstance(base, Table):
            self._changes.read(base, ...)
            for one in keys or ():
                self._changes.read(base, one)
            if keys is None:
                return chosen(join(base.rest, *base.items.values()), which)
            return chosen(join(*(base.items.get(one, base.rest) for one in keys)), which)
        if isinstance(base, CommandLine):
            self._follower.uses.use(key)
            return (
                join(*(self._follower.attributes.get(base, str(one)) for one in keys))
                if keys
                else (base,)
            )
        method = self._follower.attributes.user_method(base, "__getitem__")
        if method:
            return self._follower.calls.call(method, [key], {})
        if isinstance(base, Made) and base.content is not None:
            is_there = keys is not None and all(one in base.content.items for one in keys)
            missing = self._follower.attributes.user_method(base, "__missing__")
            otherwise = self._follower.calls.call(missing, [key], {}) if missing else ()
            return join(self.item(base.content, key), () if is_there else otherwise)
        if isinstance(base, Known) and base.label and keys and _has_items(base.value):
            plain = self._plain_item(base, key)
            if plain is not None:
                return plain
            self._follower.uses.use(which)
            return join(*(self.item_of_known(base, one) for one in keys))
        return derived((base,), key)

    def _plain_item(self, base: Known, key: Maybe) -> Maybe | None:
        """``PRESETS[name]``, if that is plain data: it counts, and not which of them it is."""
        name = key[0] if len(key) == 1 else None
        if type(base.value) not in (dict, list, tuple):
            return None
        if not isinstance(name, Known) or not name.label:
            return None
        try:
            found = base.value[name.value]
        except Exception:
            return None
        is_plain = is_plain_data(found) or is_plain_class(found) or is_plain_object(found)
        if not is_plain or self._follower.additions.of_key(base, name.value):
            return None
        self._follower.additions.note_element(found, base.value)
        return (self._recorder.known(found, f"{base.label}[{name.label}]"),)

    def item_of_known(self, base: Known, key: Any) -> Maybe:
        if not isinstance(base.value, Mapping):
            return join(self._existing_item(base, key), self._follower.additions.of_all(base))
        added = self._follower.additions.of_key(base, key)
        if isinstance(base.value, collections.defaultdict) and key not in base.value and not added:
            factory = self._recorder.known(base.value.default_factory, f"{base.label}[…]")
            added = self._follower.calls.call_one(factory, [], {})
            self._follower.additions.keep(base, key, added)
        return join(self._existing_item(base, key), added)

    def _existing_item(self, base: Known, key: Any) -> Maybe:
        label = f"{base.label}[{key!r}]"
        if base.label == "globals()":
            label = self._recorder.global_label(str(key), base.value)
            self._follower.module_state.of_globals(base.value, str(key))
        # A rank's own variables aren't in the server's environment.
        if base.value is os.environ and is_of_a_rank(str(key)):
            return ()
        try:
            if isinstance(base.value, collections.defaultdict):
                # Not by asking it: that would add an entry.
                found = dict.__getitem__(base.value, key)
            else:
                found = base.value[key]
        except Exception:
            return absent(label)
        self._follower.additions.note_element(found, base.value)
        return (self._recorder.known(found, label),)

    def set_item(self, base: Atom | None, key: Maybe, value: Maybe) -> None:
        """``base[key] = value``."""
        if isinstance(base, Made):
            self._follower.calls.call(
                self._follower.attributes.user_method(base, "__setitem__") or (_NOTHING,),
                [key, value],
                {},
            )
        base = content_of(base)
        if isinstance(base, Known):
            self._follower.additions.add(base, key, value)
            return
        if isinstance(base, Table | Items):
            self._effects.mutations += 1
        else:
            self._effects.count += 1
        self.put_item(base, key, value)

    def put_item(self, base: Atom | None, key: Maybe, value: Maybe) -> None:
        """The same for a dict that is just being made, which nobody else has."""
        keys = constants(key)
        self._follower.uses.use(key)
        if isinstance(base, Table) and keys and len(keys) == 1:
            self._follower.uses.add_entry(base, keys[0], join(base.items.get(keys[0], ()), value))
        elif isinstance(base, Table):
            self._follower.uses.add_rest(base, value)
        elif isinstance(base, Items):
            self._follower.uses.add_item(base, value)
        elif isinstance(base, Choice):
            self._follower.uses.use((base,))  # which of the containers has it from now on
        else:
            self._follower.uses.use(value)

    def merge(self, table: Table, value: Maybe) -> None:
        """``{**value}``."""
        for key, one in self.spread_keywords(value).items():
            self._follower.uses.add_entry(table, key, one)
        for atom in map(content_of, value):
            if isinstance(atom, Table):
                table.count = join(table.count, atom.count)
                table.copied_from += atom.copied_from
            elif isinstance(atom, Known) and atom.label:
                table.copied_from += (atom.label,)

    def elements(self, maybe: Maybe) -> Maybe:
        """What iterating may give."""
        for atom in maybe:
            self._follower.uses.use(self.count_of(atom))
        return self.elements_of_some(maybe)

    def elements_of_some(self, maybe: Maybe) -> Maybe:
        """The same, where it doesn't count how many there are."""
        found: list[Maybe] = []
        for atom in maybe:
            each = self.each((atom,))
            if isinstance(atom, Items):
                self._follower.uses.use_order(atom)
            if each is not None:
                found += each
            elif isinstance(atom, Derived | LibraryMethod):
                found.append(derived((atom,)))
        return join(*found)

    def count_of(self, atom: Atom) -> Maybe:
        """What decides how many elements there are."""
        if isinstance(atom, Items):
            return atom.count
        if isinstance(atom, Table):
            return join(atom.rest, atom.count)
        is_clear = isinstance(atom, Known) and (
            self._inside(atom) is not None or self.entries_of(atom, "keys") is not None
        )
        return () if is_clear else (atom,)

    def each(self, maybe: Maybe) -> list[Maybe] | None:
        """What iterating gives, one by one; None if that isn't known."""
        several, decided = without_choices(maybe), choices(maybe)
        if len(several) != 1:
            return None
        found = self._each_of(several[0])
        return [join(one, decided) for one in found] if decided and found else found

    def _each_of(self, one: Atom) -> list[Maybe] | None:
        if self._follower.attributes.user_method(one, "__iter__"):
            return None
        atom = content_of(one)
        if isinstance(atom, Items):
            return list(atom.items)
        keys = self.entries_of(atom, "keys") if atom is not None else None
        if keys is not None and isinstance(keys[0], Items):
            self._follower.uses.use_order(keys[0])
            return keys[0].items
        inside = self._inside(atom) if isinstance(atom, Known) else None
        if inside is not None and isinstance(atom, Known):
            self._recorder.put(f"len({atom.label})", len(atom.value))
        return inside

    def entries_of(self, atom: Atom, name: str) -> Maybe | None:
        """What ``items()``, ``values()`` or ``keys()`` of a dict gives; None if not known."""
        order = None
        count: Maybe = ()
        if isinstance(atom, Made) and atom.content is not None:
            atom = atom.content
        pairs: list[tuple[Maybe, Maybe]]
        if isinstance(atom, Table):
            pairs = [((Known(key, ""),), one) for key, one in atom.items.items()]
            pairs += [((), atom.rest)] if atom.rest else []
            order, count = atom.order, self.count_of(atom)
        elif isinstance(atom, Known) and _has_few_names(atom):
            pairs = [((Known(key, ""),), self.item_of_known(atom, key)) for key in list(atom.value)]
            added = self._follower.additions.of_all(atom)
            pairs += [(added, added)] if added else []
            order = (atom.label, [*atom.value, *([...] if added else [])])
        else:
            return None
        if name == "items":
            return (Items([(Items([key, one]),) for key, one in pairs], order, count),)
        return (Items([key if name == "keys" else one for key, one in pairs], order, count),)

    def copied(self, atom: Atom) -> Atom:
        """A copy: what is added to it isn't in the other."""
        if isinstance(atom, Items):
            return Items(list(atom.items), atom.order, atom.count)
        if isinstance(atom, Table):
            return Table(dict(atom.items), atom.rest, atom.kind, atom.copied_from, atom.count)
        if isinstance(atom, Known) and _has_few_names(atom):
            items: dict[Any, Maybe] = {
                key: self.item_of_known(atom, key) for key in list(atom.value)
            }
            added = self._follower.additions.of_all(atom)
            return Table(items, rest=added, copied_from=(atom.label,))
        return atom

    def _inside(self, atom: Known) -> list[Maybe] | None:
        if not atom.label:
            return None
        if is_named_tuple(type(atom.value)):
            names = type(atom.value)._fields
            return [self._follower.attributes.get(atom, name) for name in names]
        if type(atom.value) not in (list, tuple) or len(atom.value) > _MOST_ELEMENTS:
            return None
        found: list[Maybe] = []
        for number, one in enumerate(atom.value):
            self._follower.additions.note_element(one, atom.value)
            found.append((self._recorder.known(one, f"{atom.label}[{number}]"),))
        added = self._follower.additions.of_all(atom)
        return [*found, added] if added else found

    def parts(self, atom: Atom, count: int, star: int | None = None) -> list[Maybe] | None:
        """What unpacking gives to so many targets, each by itself; one may have a star."""
        inside: list[Maybe] | None = None
        if isinstance(atom, Items) and (star is None or not atom.count):
            inside = atom.items
        elif isinstance(atom, Known):
            inside = self._inside(atom)
        elif isinstance(atom, Made) and is_named_tuple(atom.cls):
            inside = list(atom.fields.values())
        if inside is not None and star is not None and len(inside) >= count - 1:
            end = len(inside) - (count - 1 - star)
            rest: Maybe = (Items(inside[star:end]),)
            inside = [*inside[:star], rest, *inside[end:]]
        return inside if inside is not None and len(inside) == count else None

    def spread(self, maybe: Maybe) -> list[Maybe]:
        """The arguments that ``*value`` stands for."""
        each = self.each(maybe)
        if each is None:
            self._follower.uses.use(maybe)
        for one in maybe if each is not None else ():
            if isinstance(one, Items):
                self._follower.uses.use_order(one)
            self._follower.uses.use(self.count_of(one))
        return each or []

    def spread_keywords(self, maybe: Maybe) -> dict[str, Maybe]:
        """The arguments that ``**value`` stands for."""
        found: dict[str, Maybe] = {}
        for atom in map(content_of, maybe):
            assert atom is not None
            if isinstance(atom, Table):
                found.update({key: one for key, one in atom.items.items() if isinstance(key, str)})
                self._follower.uses.use(atom.rest)
            elif isinstance(atom, Known) and _has_keys(atom.value):
                if atom.label:
                    self._recorder.put(f"bool({atom.label})", bool(atom.value))
                for key in list(atom.value):
                    found[str(key)] = self.item(atom, (Known(key, ""),))
                # Whatever is added has a key that isn't there yet.
                self._follower.uses.use(self._follower.additions.of_all(atom))
            else:
                self._follower.uses.use((atom,))
        return found


def is_named_tuple(cls: Any) -> bool:
    """Whether the objects of a class are named tuples, which nobody iterates otherwise."""
    is_tuple = isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")
    return is_tuple and cls.__iter__ is tuple.__iter__


def _has_few_names(atom: Known) -> bool:
    """Whether this is a dict that can be followed entry by entry."""
    is_dict = type(atom.value) in _DICTS and bool(atom.label)
    return (
        is_dict
        and len(atom.value) <= _MOST_KEYS
        and all(isinstance(key, str) for key in atom.value)
    )


def _has_items(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) or (
        hasattr(value, "keys") and hasattr(value, "__getitem__")
    )


def _has_keys(value: Any) -> bool:
    if isinstance(value, argparse.Namespace) or not isinstance(value, Mapping):
        return False
    try:
        return all(isinstance(key, str) for key in value)
    except Exception:
        return False
