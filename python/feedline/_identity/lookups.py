"""Attributes, items and elements of what an expression may stand for."""

from __future__ import annotations

import argparse
import functools
import inspect
import logging
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from feedline._identity.command_line import CommandLine, Default, Parser
from feedline._identity.origin import is_user_class, is_user_function
from feedline._identity.reached import Reached
from feedline._identity.values import (
    Atom,
    Bound,
    Derived,
    Items,
    Known,
    LibraryMethod,
    LocalClass,
    Made,
    Maybe,
    Parent,
    Table,
    constants,
    derived,
    join,
)

_MISSING = object()
# A list with more elements than this is used as a whole.
_MOST_ELEMENTS = 32
_MOST_KEYS = 200


class Lookups(Reached):
    """What is found by a name, a key or an iteration."""

    def attribute(self, base: Atom, name: str) -> Maybe:
        if isinstance(base, Made):
            return self._of_made(base, name)
        if isinstance(base, Known):
            return self._of_known(base, name)
        if isinstance(base, Table) and name in base.items:
            return base.items[name]
        if isinstance(base, Parent):
            return self._of_parent(base, name)
        if isinstance(base, CommandLine):
            return self._of_command_line(base, name)
        if isinstance(base, Derived | Parser):
            return (LibraryMethod(base, name),)
        if isinstance(base, LocalClass):
            function = base.functions.get(name)
            return base.attributes.get(name, ()) if function is None else (function,)
        if isinstance(base, Items | Table):
            return (LibraryMethod(base, name),)
        return tuple(LibraryMethod(one, name) for one in derived((base,)))

    def _of_command_line(self, base: CommandLine, name: str) -> Maybe:
        if base.parsed is None:
            return (base,)
        if name == "__dict__":
            return (Table({key: self._of_command_line(base, key) for key in base.parsed}),)
        if name not in base.parsed:
            return (base,)
        value, label = base.parsed[name], f"{name} on the command line"
        if isinstance(value, Default):
            given: Maybe = value.value if isinstance(value.value, tuple) else ()
            if not all(isinstance(one, Atom) for one in given):
                given = ()
            plain = constants(given) if given else [value.value]
            if plain is None or len(plain) > 1:
                return given
            value = plain[0]
        # What is typed is a text; a default that is the same may be a number.
        is_plain = isinstance(value, int | float) and not isinstance(value, bool)
        return (self.known(str(value) if is_plain else value, label),)

    def _of_made(self, base: Made, name: str) -> Maybe:
        if name in base.fields:
            return base.fields[name]
        if name == "__class__":
            return (
                (base.cls,)
                if isinstance(base.cls, LocalClass)
                else (self.known(base.cls, base.cls.__name__),)
            )
        if isinstance(base.cls, LocalClass):
            function = base.cls.functions.get(name)
            if function is not None:
                return (Bound(function, base),)
            if name in base.cls.attributes:
                return base.cls.attributes[name]
            return (LibraryMethod(base, name),) if base.cls.bases else ()
        found = inspect.getattr_static(base.cls, name, _MISSING)
        return self._of_class(found, base.cls, base, name)

    def _of_class(self, found: Any, cls: type, receiver: Atom | None, name: str) -> Maybe:
        """What was found in a class, as seen through an object, or through the class itself."""
        label = f"{cls.__qualname__}.{name}"
        if found is _MISSING:
            return ()
        if isinstance(found, staticmethod):
            return (self.known(found.__func__, label),)
        if isinstance(found, classmethod):
            return (Bound(self.known(found.__func__, label), self.known(cls, cls.__qualname__)),)
        getter = found.fget if isinstance(found, property) else None
        if isinstance(found, functools.cached_property):
            getter = found.func
        if getter is not None and receiver is not None:
            return self.call((Bound(self.known(getter, label), receiver),), [], {})
        if isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
            function = self.known(found, label)
            if receiver is None:
                return (function,)
            inner = inspect.unwrap(found)
            if isinstance(inner, types.FunctionType) and is_user_function(inner):
                return (Bound(function, receiver),)
            return (LibraryMethod(receiver, name),)
        if callable(found) and hasattr(found, "__get__") and receiver is not None:
            return (LibraryMethod(receiver, name),)
        if hasattr(found, "__get__") and hasattr(type(found), "__set__"):
            return ()  # a slot
        return (self.known(found, label),)

    def _of_parent(self, base: Parent, name: str) -> Maybe:
        if isinstance(base.owner, LocalClass) or not isinstance(base.owner, type):
            return (LibraryMethod(base, name),)
        cls = base.owner
        if isinstance(base.receiver, Made) and isinstance(base.receiver.cls, type):
            cls = base.receiver.cls
        elif isinstance(base.receiver, Known):
            one = base.receiver.value
            cls = one if isinstance(one, type) else type(one)
        order = cls.__mro__
        after = (
            order[order.index(base.owner) + 1 :] if base.owner in order else base.owner.__mro__[1:]
        )
        for parent in after:
            if name in vars(parent):
                if not is_user_class(parent):
                    break
                return self._of_class(vars(parent)[name], parent, base.receiver, name)
        return (LibraryMethod(base, name),)

    def _of_known(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        if isinstance(value, logging.Logger) or value is sys.stdout or value is sys.stderr:
            return (LibraryMethod(base, name),)
        written = self._written.get(id(value), {}).get(name)
        found = self._in_known(base, name)
        if written is not None:
            return join(written, found)
        if found == () and label and not isinstance(value, types.ModuleType | type):
            self.use_absent(f"{label}.{name}")
        return found

    def _in_known(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        if name == "__dict__":
            return (self.known(getattr(value, "__dict__", {}), label),)
        if isinstance(value, type) and is_user_class(value):
            return self._of_class(inspect.getattr_static(value, name, _MISSING), value, None, name)
        if is_user_class(type(value)) and not isinstance(value, types.ModuleType):
            return self._of_user_object(base, name)
        try:
            found = getattr(value, name)
        except Exception:
            return ()
        if isinstance(value, types.ModuleType | type):
            return (self.known(found, f"{label}.{name}"),)
        if callable(found) and getattr(found, "__self__", None) is value:
            return (LibraryMethod(base, name),)
        return (self.known(found, f"{label}.{name}"),) if label else ()

    def _of_user_object(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        own = getattr(value, "__dict__", {})
        found = inspect.getattr_static(type(value), name, _MISSING)
        if name in own and not isinstance(found, property | functools.cached_property):
            return (self.known(own[name], f"{label}.{name}"),)
        if _is_native_descriptor(found):
            return self._read(base, name)
        if found is not _MISSING:
            seen = self._of_class(found, type(value), base, name)
            is_data = len(seen) == 1 and isinstance(seen[0], Known) and not callable(seen[0].value)
            return self._read(base, name) if is_data else seen
        dynamic = inspect.getattr_static(type(value), "__getattr__", None)
        if isinstance(dynamic, types.FunctionType) and is_user_function(dynamic):
            getter = Bound(self.known(dynamic, "__getattr__"), base)
            reached = self.call((getter,), [(Known(name, ""),)], {})
            if not reached:
                # It may have looked anywhere.
                self.put(label, value)
            return reached
        return self._read(base, name)

    def _read(self, base: Known, name: str) -> Maybe:
        try:
            return (self.known(getattr(base.value, name), f"{base.label}.{name}"),)
        except Exception:
            return ()

    def set_attribute(self, base: Atom | None, name: str, value: Maybe) -> None:
        if isinstance(base, Made):
            base.fields[name] = join(base.fields.get(name, ()), value)
        elif isinstance(base, Known) and is_user_class(type(base.value)):
            fields = self._written.setdefault(id(base.value), {})
            fields[name] = join(fields.get(name, ()), value)
            self._lazy.add(f"{base.label}.{name}")
        elif isinstance(base, Table):
            self.add_entry(base, name, join(base.items.get(name, ()), value))
        else:
            self.use(value)

    # Items.

    def item(self, base: Atom, key: Maybe) -> Maybe:
        keys = constants(key)
        if keys is not None and not all(isinstance(one, str | int | bytes | None) for one in keys):
            keys = None
        if isinstance(base, Items):
            self.use(key)
            count = len(base.items)
            if keys and all(isinstance(one, int) and -count <= one < count for one in keys):
                return join(*(base.items[one] for one in keys))
            self.use_order(base)
            return join(*base.items)
        if isinstance(base, Table):
            self.use(key)
            if keys is None:
                return join(base.rest, *base.items.values())
            return join(*(base.items.get(one, base.rest) for one in keys))
        if isinstance(base, CommandLine):
            self.use(key)
            return join(*(self.attribute(base, str(one)) for one in keys)) if keys else (base,)
        method = self._user_method(base, "__getitem__")
        if method:
            return self.call(method, [key], {})
        if isinstance(base, Known) and base.label and keys and _has_items(base.value):
            self.use(tuple(one for one in key if not isinstance(one, Known) or one.label))
            return join(*(self._item(base, one) for one in keys))
        return derived((base,), key)

    def _item(self, base: Known, key: Any) -> Maybe:
        label = f"{base.label}[{key!r}]"
        if base.label == "globals()":
            label = self.global_label(str(key), base.value)
        if base.value is os.environ and not self.use_environment(str(key)):
            return ()
        try:
            return (self.known(base.value[key], label),)
        except Exception:
            self.use_absent(label)
            return ()

    def _user_method(self, base: Atom, name: str) -> Maybe:
        is_user_object = isinstance(base, Known) and is_user_class(type(base.value))
        if not isinstance(base, Made) and not is_user_object:
            return ()
        if isinstance(base, Known) and inspect.getattr_static(type(base.value), name, None) is None:
            return ()
        return tuple(one for one in self.attribute(base, name) if isinstance(one, Bound))

    def set_item(self, base: Atom | None, key: Maybe, value: Maybe) -> None:
        keys = constants(key)
        self.use(key)
        if isinstance(base, Table) and keys and len(keys) == 1:
            self.add_entry(base, keys[0], join(base.items.get(keys[0], ()), value))
        elif isinstance(base, Table):
            self.add_rest(base, value)
        elif isinstance(base, Items):
            self.add_item(base, value)
        else:
            self.note_filled(base)
            self.use(value)

    def note_filled(self, base: Atom | None) -> None:
        """The user's code adds to a list or a dict that exists: how far it got may differ."""
        if isinstance(base, Known) and "." in base.label and isinstance(base.value, dict | list):
            self._caches.add(base.label)

    def merge(self, table: Table, value: Maybe) -> None:
        """``{**value}``."""
        for key, one in self.spread_keywords(value).items():
            self.add_entry(table, key, one)

    # Elements.

    def elements(self, maybe: Maybe) -> Maybe:
        """What iterating may give."""
        found: list[Maybe] = []
        for atom in maybe:
            each = self.each((atom,))
            self.use(self.count_of(atom))
            if isinstance(atom, Items):
                self.use_order(atom)
            if each is not None:
                found += each
            elif isinstance(atom, Derived | LibraryMethod):
                found.append(derived((atom,)))
        return join(*found)

    def count_of(self, atom: Atom) -> Maybe:
        """What decides how many elements there are."""
        if isinstance(atom, Items):
            return atom.count
        return () if isinstance(atom, Known) and self._inside(atom) is not None else (atom,)

    def each(self, maybe: Maybe) -> list[Maybe] | None:
        """What iterating gives, one by one; None if that isn't known."""
        if len(maybe) != 1:
            return None
        atom = maybe[0]
        if isinstance(atom, Items):
            return list(atom.items)
        inside = self._inside(atom) if isinstance(atom, Known) else None
        if inside is not None and isinstance(atom, Known):
            self.put(f"len({atom.label})", len(atom.value))
        if isinstance(atom, Known) and type(atom.value) is dict and atom.label:
            self.put(f"order of {atom.label}", list(atom.value))
        return inside

    def entries_of(self, atom: Atom, name: str) -> Maybe | None:
        """What ``items()``, ``values()`` or ``keys()`` of a dict gives; None if not known."""
        order = None
        pairs: list[tuple[Maybe, Maybe]]
        if isinstance(atom, Table):
            pairs = [((Known(key, ""),), one) for key, one in atom.items.items()]
            pairs += [((), atom.rest)] if atom.rest else []
        elif isinstance(atom, Known) and type(atom.value) is dict and atom.label:
            if len(atom.value) > _MOST_KEYS or not all(isinstance(key, str) for key in atom.value):
                return None
            pairs = [((Known(key, ""),), self._item(atom, key)) for key in list(atom.value)]
            order = (atom.label, list(atom.value))
        else:
            return None
        if name == "items":
            return (Items([(Items([key, one]),) for key, one in pairs], order),)
        return (Items([key if name == "keys" else one for key, one in pairs], order),)

    def _inside(self, atom: Known) -> list[Maybe] | None:
        is_list = (
            type(atom.value) in (list, tuple) and atom.label and len(atom.value) <= _MOST_ELEMENTS
        )
        if not is_list:
            return None
        return [
            (self.known(one, f"{atom.label}[{number}]"),) for number, one in enumerate(atom.value)
        ]

    def parts(self, atom: Atom, count: int) -> list[Maybe] | None:
        """What unpacking gives, each by itself."""
        if isinstance(atom, Items):
            return atom.items if len(atom.items) == count else None
        inside = self._inside(atom) if isinstance(atom, Known) else None
        return inside if inside is not None and len(inside) == count else None

    def spread(self, maybe: Maybe) -> list[Maybe]:
        """The arguments that ``*value`` stands for."""
        each = self.each(maybe)
        if each is None:
            self.use(maybe)
        elif isinstance(maybe[0], Items):
            self.use_order(maybe[0])
            self.use(maybe[0].count)
        return each or []

    def spread_keywords(self, maybe: Maybe) -> dict[str, Maybe]:
        """The arguments that ``**value`` stands for."""
        found: dict[str, Maybe] = {}
        for atom in maybe:
            if isinstance(atom, Table):
                found.update({key: one for key, one in atom.items.items() if isinstance(key, str)})
                self.use(atom.rest)
            elif isinstance(atom, Known) and _has_keys(atom.value):
                for key in list(atom.value):
                    found[str(key)] = self.item(atom, (Known(key, ""),))
            else:
                self.use((atom,))
        return found


def _is_native_descriptor(found: Any) -> bool:
    """A slot, a field of a named tuple: what native code reads from the object."""
    kinds = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
    is_native = type(type(found)) is type and not isinstance(found, kinds) and not callable(found)
    return is_native and found is not _MISSING and hasattr(type(found), "__get__")


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
