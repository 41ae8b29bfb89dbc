"""Attributes of what an expression may stand for."""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
import types
from typing import Any

from feedline._identity.command_line import CommandLine, Default, Parser
from feedline._identity.files import Content
from feedline._identity.origin import is_user, is_user_class, is_user_function
from feedline._identity.part import Part
from feedline._identity.telling import LOGGERS, TRACKING
from feedline._identity.uses import compared_as_a_whole
from feedline._identity.values import (
    Array,
    Atom,
    Bound,
    Choice,
    Derived,
    Items,
    Known,
    LibraryMethod,
    LocalClass,
    Made,
    Maybe,
    Parent,
    Table,
    absent,
    chosen,
    constants,
    derived,
    join,
)

_MISSING = object()


class Attributes(Part):
    """What is found, and set, by a name."""

    def get(self, base: Atom, name: str) -> Maybe:
        if isinstance(base, Choice):
            return (base,)
        if isinstance(base, Made):
            return self._of_made(base, name)
        if isinstance(base, Known):
            return self._of_known(base, name)
        if isinstance(base, Table) and name in base.items:
            return base.items[name]
        if isinstance(base, Table) and name == "__dict__":
            return (base,)
        if isinstance(base, Parent):
            return self._of_parent(base, name)
        if isinstance(base, CommandLine):
            return self._of_command_line(base, name)
        if isinstance(base, Array) and name in base.fields:
            return base.fields[name]
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
        return (self._recorder.known(str(value) if is_plain else value, label),)

    def _of_made(self, base: Made, name: str) -> Maybe:
        self._changes.read(base, name)
        if name in base.fields:
            return base.fields[name]
        if name == "__dict__":
            return (Table(base.fields),)  # the same dict: what is added to it is a field
        if name == "__class__":
            return (
                (base.cls,)
                if isinstance(base.cls, LocalClass)
                else (self._recorder.known(base.cls, base.cls.__name__),)
            )
        if isinstance(base.cls, LocalClass):
            function = base.cls.functions.get(name)
            if function is not None:
                return (Bound(function, base),)
            if name in base.cls.attributes:
                return base.cls.attributes[name]
            if base.content is None or hasattr(dict, name):
                return (LibraryMethod(base, name),) if base.cls.bases else ()
            getter: Any = base.cls.functions.get("__getattr__")
            return self._of_dynamic(base, getter, name)
        found = inspect.getattr_static(base.cls, name, _MISSING)
        if found is not _MISSING:
            self._follower.module_state.of_class(base.cls, name)
            seen = self._of_class(found, base.cls, base, name)
            return join(self._written(base.cls, name), seen)
        dynamic = inspect.getattr_static(base.cls, "__getattr__", None)
        is_user = isinstance(dynamic, types.FunctionType) and is_user_function(dynamic)
        return self._of_dynamic(
            base, self._recorder.known(dynamic, "__getattr__") if is_user else None, name
        )

    def _of_dynamic(self, base: Made, getter: Atom | None, name: str) -> Maybe:
        """An attribute that only ``__getattr__`` finds."""
        if getter is not None and not name.startswith("__"):
            return self._follower.calls.call((Bound(getter, base),), [(Known(name, ""),)], {})
        if base.content is not None:
            return base.content.items.get(name, base.content.rest)
        return ()

    def _of_class(self, found: Any, cls: type, receiver: Atom | None, name: str) -> Maybe:
        """What was found in a class, as seen through an object, or through the class itself."""
        label = f"{cls.__qualname__}.{name}"
        if found is _MISSING:
            return ()
        if isinstance(found, staticmethod):
            return (self._recorder.known(found.__func__, label),)
        if isinstance(found, classmethod):
            return (
                Bound(
                    self._recorder.known(found.__func__, label),
                    self._recorder.known(cls, cls.__qualname__),
                ),
            )
        getter = found.fget if isinstance(found, property) else None
        if isinstance(found, functools.cached_property):
            getter = found.func
        if getter is not None and receiver is not None:
            return self._follower.calls.call(
                (Bound(self._recorder.known(getter, label), receiver),), [], {}
            )
        if isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
            function = self._recorder.known(found, label)
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
        return (self._recorder.known(found, label),)

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
                self._follower.module_state.of_class(parent, name)
                return self._of_class(vars(parent)[name], parent, base.receiver, name)
        return (LibraryMethod(base, name),)

    def _of_known(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        is_output = value is sys.stdout or value is sys.stderr
        is_missing_tracker = value is None and name in TRACKING
        if isinstance(value, (*LOGGERS, Content)) or is_output or is_missing_tracker:
            return (LibraryMethod(base, name),)
        self._changes.read(value, name)
        written = self._written(value, name)
        found = self._in_known(base, name)
        if written:
            return join(written, found)
        if found == () and label and not isinstance(value, types.ModuleType | type):
            return absent(f"{label}.{name}")
        return found

    def _written(self, value: Any, name: str) -> Maybe:
        """What the user's code sets on an object that exists, or on its class."""
        cls = value if isinstance(value, type) else type(value)
        fields = [self._follower.uses.written.get(id(one), {}) for one in (value, *cls.__mro__)]
        return join(*(one.get(name, ()) for one in fields))

    def _in_known(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        if name == "__dict__":
            fields = getattr(value, "__dict__", {})
            self._follower.additions.read_by_others(fields)  # as attributes
            return (self._recorder.known(fields, label),)
        if isinstance(value, type) and is_user_class(value):
            found = inspect.getattr_static(value, name, _MISSING)
            self._follower.module_state.of_class(value, name)
            seen = self._of_class(found, value, None, name)
            # Which class it is doesn't count, if what is found there is the same.
            return self._read(base, name) if label and _is_data(seen) else seen
        if is_user_class(type(value)) and not isinstance(value, types.ModuleType):
            return self._of_user_object(base, name)
        try:
            found = getattr(value, name)
        except Exception:
            # Somebody has made an object of this dict, whose attributes are its entries.
            return (
                self._follower.containers.item_of_known(base, name)
                if type(value) is dict and name in value
                else ()
            )
        is_user_module = isinstance(value, types.ModuleType) and is_user(value)
        if is_user_module:
            self._follower.module_state.of_globals(vars(value), name)
        else:
            self._follower.additions.read_by_others(found)
        if isinstance(value, types.ModuleType | type):
            return (self._recorder.known(found, f"{label}.{name}"),)
        if callable(found) and getattr(found, "__self__", None) is value:
            return (LibraryMethod(base, name),)
        return (self._recorder.known(found, f"{label}.{name}"),) if label else ()

    def _of_user_object(self, base: Known, name: str) -> Maybe:
        value, label = base.value, base.label
        own = getattr(value, "__dict__", {})
        found = inspect.getattr_static(type(value), name, _MISSING)
        if name in own and not isinstance(found, property | functools.cached_property):
            return (self._recorder.known(own[name], f"{label}.{name}"),)
        if _is_native_descriptor(found):
            return self._read(base, name)
        if found is not _MISSING:
            self._follower.module_state.of_class(type(value), name)
            seen = self._of_class(found, type(value), base, name)
            return self._read(base, name) if _is_data(seen) else seen
        dynamic = inspect.getattr_static(type(value), "__getattr__", None)
        if isinstance(dynamic, types.FunctionType) and is_user_function(dynamic):
            getter = Bound(self._recorder.known(dynamic, "__getattr__"), base)
            reached = self._follower.calls.call((getter,), [(Known(name, ""),)], {})
            if not reached:
                # It may have looked anywhere.
                self._recorder.put(label, value)
            return reached
        return self._read(base, name)

    def _read(self, base: Known, name: str) -> Maybe:
        try:
            return (self._recorder.known(getattr(base.value, name), f"{base.label}.{name}"),)
        except Exception:
            return ()

    def set(self, base: Atom | None, name: str, value: Maybe) -> None:
        setter = self._property_setter(base, name)
        if setter:
            self._follower.calls.call(setter, [value], {})
            return
        if isinstance(base, Made):
            setter = self.user_method(base, "__setattr__")
            if setter:
                self._follower.calls.call(setter, [(Known(name, ""),), value], {})
            self.set_field(base, name, value)
            return
        if isinstance(base, Table):
            self._effects.mutations += 1
            self._follower.uses.add_entry(base, name, join(base.items.get(name, ()), value))
            return
        self._effects.count += 1
        if isinstance(base, Known) and _takes_attributes(base.value):
            fields = self._follower.uses.written.setdefault(id(base.value), {})
            self._put(fields, name, value, base.value)
            if is_user_class(type(base.value)) or isinstance(base.value, type):
                self._recorder.lazy.add(f"{base.label}.{name}")
            if id(base.value) in self._follower.uses.recorded and compared_as_a_whole(base.value):
                self._follower.uses.use(value)
        elif isinstance(base, Choice):
            self._follower.uses.use((base,))  # which of the objects has it from now on
        else:
            self._follower.uses.use(value)

    def _property_setter(self, base: Atom | None, name: str) -> Maybe:
        if not isinstance(base, Known | Made):
            return ()
        cls = base.cls if isinstance(base, Made) else type(base.value)
        found = inspect.getattr_static(cls, name, None) if isinstance(cls, type) else None
        function = found.fset if isinstance(found, property) else None
        if not isinstance(function, types.FunctionType) or not is_user_function(function):
            return ()
        return (Bound(self._recorder.known(function, function.__qualname__), base),)

    def set_field(self, made: Made, name: str, value: Maybe) -> None:
        """What ``object.__setattr__`` does; a subclass of dict may have it as an entry, too."""
        self._effects.mutations += 1
        value = chosen(value, self._effects.tests)
        if name == "__dict__" and made not in value:
            for key, one in self._follower.containers.spread_keywords(value).items():
                self._put(made.fields, key, one, made)
            return
        if made.content is not None and name != "__dict__":
            self._follower.uses.add_entry(
                made.content, name, join(made.content.items.get(name, ()), value)
            )
        else:
            self._put(made.fields, name, value, made)

    def _put(self, fields: dict[str, Maybe], name: str, value: Maybe, owner: object) -> None:
        """A field may be this, too, from now on."""
        before = fields.get(name, ())
        fields[name] = join(before, value)
        if len(fields[name]) != len(before):
            self._changes.change(owner, name)

    def user_method(self, base: Atom, name: str) -> Maybe:
        is_user_object = isinstance(base, Known) and is_user_class(type(base.value))
        if not isinstance(base, Made) and not is_user_object:
            return ()
        if isinstance(base, Known) and inspect.getattr_static(type(base.value), name, None) is None:
            return ()
        return tuple(one for one in self.get(base, name) if isinstance(one, Bound))


def _is_data(seen: Maybe) -> bool:
    return len(seen) == 1 and isinstance(seen[0], Known) and not callable(seen[0].value)


def _is_native_descriptor(found: Any) -> bool:
    """A slot, a field of a named tuple: what native code reads from the object."""
    kinds = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
    is_native = type(type(found)) is type and not isinstance(found, kinds) and not callable(found)
    return is_native and found is not _MISSING and hasattr(type(found), "__get__")


def _takes_attributes(value: Any) -> bool:
    """Whether what is set on an object is found there again, and does nothing else."""
    kinds = (argparse.Namespace, types.SimpleNamespace)
    if isinstance(value, type):
        return is_user_class(value) and type(value) is type
    return isinstance(value, kinds) or is_user_class(type(value))
