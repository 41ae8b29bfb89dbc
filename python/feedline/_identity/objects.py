"""Objects of the user's classes in the hands of Python or a library: which of their methods run."""

from __future__ import annotations

import functools
import types
from typing import Any

from feedline._identity.data_loaders import OF_A_RUN, is_data_loader
from feedline._identity.origin import PROTOCOLS, is_container, is_user_class, library_bases
from feedline._identity.part import Part
from feedline._identity.plain import is_plain_data
from feedline._identity.values import Bound, Function, Known, LocalClass, Made

# Methods by which Python, torch or a feed use an object; the rest is the user's own affair.
_NOT_USED = {
    *("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__"),
    *("__repr__", "__str__", "__format__", "__eq__", "__ne__", "__hash__", "__del__", "__sizeof__"),
}
_ASKED_FOR = {"set_epoch", "state_dict", "load_state_dict", "collate_fn"}
_BUILTIN: tuple[Any, ...] = (dict, list, tuple, set, str, bytes, int, float)


class Objects(Part):
    """What becomes of an object that other code gets."""

    def escape(self, receiver: Known | Made, cls: type | LocalClass, label: str) -> None:
        """An object that code which isn't the user's may do anything with: it calls its methods."""
        fields = receiver.fields if isinstance(receiver, Made) else {}
        if isinstance(receiver, Made) and receiver.content is not None:
            self._follower.uses.use((receiver.content,))
        if isinstance(cls, LocalClass):
            names = [name for name in cls.functions if name not in _NOT_USED]
            if cls.bases == () and not PROTOCOLS & set(names):
                for one in fields.values():
                    self._follower.uses.use(one)
        elif is_container(cls):
            if isinstance(receiver, Known):
                self._recorder.put(label, receiver.value)
            for one in fields.values():
                self._follower.uses.use(one)
            self.use_methods(cls)
            return
        else:
            names = entry_points(cls)
            self._use_library_fields(receiver, cls, label)
        for name in names:
            # A property gives its value, a method what it returns.
            for atom in self._follower.attributes.get(receiver, name):
                if isinstance(atom, Bound | Function):
                    self._follower.uses.use_call(atom)
                else:
                    self._follower.uses.use((atom,))

    def use_methods(self, cls: type) -> None:
        """All methods of a class whose objects are compared as a whole: somebody may call them."""
        names = [
            name
            for base in cls.__mro__
            if base is not object
            for name, one in vars(base).items()
            if name not in _NOT_USED and isinstance(one, types.FunctionType)
        ]
        made = Made(cls)
        self._recorder.alive.append(made)
        for name in names:
            for atom in self._follower.attributes.get(made, name):
                self._follower.uses.once(
                    (id(cls), name), functools.partial(self._follower.uses.use_call, atom)
                )

    def _use_library_fields(self, receiver: Known | Made, cls: type, label: str) -> None:
        """Fields that a base class of a library reads too."""
        read = names_of_library(cls) - (OF_A_RUN if is_data_loader(cls) else frozenset())
        if isinstance(receiver, Made):
            for name, value in receiver.fields.items():
                if name in read:
                    self._follower.uses.use(value)
            return
        value = receiver.value
        for name, one in list(getattr(value, "__dict__", {}).items()):
            if name in read:
                self._follower.uses.record(one, f"{label}.{name}")
        builtin = next((base for base in _BUILTIN if isinstance(value, base)), None)
        if builtin is not None:
            self._recorder.put(f"items of {label}", builtin(value))


def is_plain_object(value: Any) -> bool:
    """Whether an object of the user's only holds plain values, as a configuration does."""
    fields = getattr(value, "__dict__", None)
    is_object = isinstance(fields, dict) and not isinstance(value, type)
    if not is_object or not is_user_class(type(value)) or not is_container(type(value)):
        return False
    return is_plain_data(fields)


def is_plain_class(value: Any) -> bool:
    """Whether this is a class of the user's that only has plain values, as a configuration does."""
    if type(value) is not type or library_bases(value):
        return False
    return all(
        is_plain_data(one)
        for base in value.__mro__[:-1]
        for name, one in vars(base).items()
        if not name.startswith("__")
    )


@functools.lru_cache(maxsize=256)
def names_of_library(cls: type) -> frozenset[str]:
    """Every name that the code of a class's library bases mentions."""
    found: set[str] = set()
    for base in cls.__mro__:
        if base is object or is_user_class(base):
            continue
        for one in vars(base).values():
            function = getattr(one, "__func__", getattr(one, "fget", one))
            if isinstance(function, types.FunctionType):
                found.update(function.__code__.co_names)
    return frozenset(found)


def entry_points(cls: type) -> list[str]:
    """The methods by which others use an object."""
    bases = library_bases(cls)
    found: dict[str, None] = {}
    for base in cls.__mro__:
        if base is object or not is_user_class(base):
            continue
        for name, one in vars(base).items():
            is_code = isinstance(one, types.FunctionType | staticmethod | classmethod | property)
            is_asked = (
                name.startswith("__") or name in _ASKED_FOR or any(hasattr(b, name) for b in bases)
            )
            if is_code and is_asked and name not in _NOT_USED:
                found.setdefault(name)
    return list(found)
