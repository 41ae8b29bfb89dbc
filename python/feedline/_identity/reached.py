"""What was used of all that the user's code can reach: labels, short values and digests."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import functools
import os
import pathlib
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from feedline._identity import sources
from feedline._identity.digests import Digester, shown
from feedline._identity.origin import (
    is_user,
    is_user_class,
    is_user_function,
    is_user_module,
    package_version,
)
from feedline._identity.values import (
    Atom,
    Bound,
    CommandLine,
    Function,
    Items,
    Known,
    LibraryMethod,
    LocalClass,
    Made,
    Maybe,
    Parent,
    Partial,
    Table,
)
from feedline._shard import is_of_a_rank

ABSENT = "(not there)"
# A configuration with more entries than this is compared as one.
_MOST_FIELDS = 200
_LONGEST_PATH = 1000
# Methods by which Python, torch or a feed use an object; the rest is the user's own affair.
_NOT_USED = {
    *("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__"),
    *("__repr__", "__str__", "__format__", "__eq__", "__ne__", "__hash__", "__del__", "__sizeof__"),
}
_ASKED_FOR = {"set_epoch", "state_dict", "load_state_dict", "collate_fn"}
_BUILTIN: tuple[Any, ...] = (dict, list, tuple, set, str, bytes, int, float)
_PROTOCOLS = {
    "__getitem__",
    "__iter__",
    "__next__",
    "__call__",
    "__len__",
    "__enter__",
    "__array__",
}


class Entry(NamedTuple):
    """One thing that two loaders may differ in."""

    label: str
    shown: str
    digest: str


class Reached:
    """Collects what is used; ``Follower`` finds out what that is."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Begin with nothing; names of ``root_globals`` need no module before them."""
        self._root_globals = root_globals
        self._values: dict[str, Any] = {}
        self._texts: dict[str, Entry] = {}
        self._todo: list[Callable[[], object]] = []
        # By address; what has an address here must not go away meanwhile.
        self._escaped: set[Any] = set()
        self._alive: list[Any] = []
        # Fields that the user's code sets on objects that exist already.
        self._written: dict[int, dict[str, Maybe]] = {}
        self._digester = Digester(self._meet)

    # Of the parts that follow.

    def call(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        raise NotImplementedError

    def attribute(self, base: Any, name: str) -> Maybe:
        raise NotImplementedError

    def construct(
        self, cls: type | LocalClass, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        raise NotImplementedError

    # Labels.

    def known(self, value: Any, label: str) -> Known:
        self._alive.append(value)
        return Known(value, label)

    def global_label(self, name: str, globals_: dict[str, Any]) -> str:
        module = globals_.get("__name__")
        is_root = globals_ is self._root_globals or module == "__main__"
        return name if is_root else f"{module}.{name}"

    # Using.

    def use(self, maybe: Maybe) -> None:
        """All of it counts from here on."""
        for atom in maybe:
            if isinstance(atom, Known):
                self.record(atom.value, atom.label)
            elif isinstance(atom, Items):
                for one in atom.items:
                    self.use(one)
            elif isinstance(atom, Table):
                for one in (*atom.items.values(), atom.rest):
                    self.use(one)
            elif isinstance(atom, Made):
                self._once(id(atom), functools.partial(self._escape, atom, atom.cls, ""))
                self._alive.append(atom)
            elif isinstance(atom, LibraryMethod | Parent):
                self.use((atom.receiver,))
            elif isinstance(atom, CommandLine):
                self._values["sys.argv"] = list(atom.argv)
            elif isinstance(atom, LocalClass):
                self._once(id(atom), functools.partial(self._use_class, atom))
                self._alive.append(atom)
            else:
                self._once(self._key(atom), functools.partial(self._use_call, atom))
                self._alive.append(atom)

    def _key(self, atom: Function | Bound | Partial) -> Any:
        if isinstance(atom, Function):
            return id(atom.node), id(atom.scope)
        if (
            isinstance(atom, Bound)
            and isinstance(atom.function, Known)
            and isinstance(atom.receiver, Known)
        ):
            return id(atom.function.value), id(atom.receiver.value)
        return id(atom)

    def _use_call(self, atom: Atom) -> None:
        """Somebody else calls it, and does what he likes with what it returns."""
        self.use(self.call((atom,), [], {}))

    def _use_class(self, cls: type | LocalClass) -> None:
        self.use(self.construct(cls, [], {}))

    def _once(self, key: Any, act: Callable[[], object]) -> None:
        if key not in self._escaped:
            self._escaped.add(key)
            self._todo.append(act)

    def record(self, value: Any, label: str) -> None:
        """An object that exists: its content, and what its code reaches."""
        self._alive.append(value)
        if not label:
            self._path(value, f"path {value!r}")
        elif isinstance(value, types.ModuleType):
            if is_user(value) and value.__name__ != "__main__":
                self.use_file(value.__name__, getattr(value, "__file__", None) or "")
            self.note_package(value.__name__)
        elif isinstance(value, types.FunctionType):
            act = functools.partial(self._use_call, self.known(value, label))
            if is_user_function(value) or hasattr(value, "__wrapped__"):
                self._once(id(value), act)
            self.note_package(value.__module__ or "")
        elif isinstance(value, types.MethodType):
            bound = Bound(
                self.known(value.__func__, label), self.known(value.__self__, f"{label}.__self__")
            )
            self.use((bound,))
        elif isinstance(value, functools.partial) or hasattr(type(value), "__wrapped__"):
            self._values[label] = value
            self._once(id(value), functools.partial(self._use_call, self.known(value, label)))
        elif isinstance(value, type):
            self._record_class(value, label)
        elif is_user_class(type(value)) and not isinstance(value, enum.Enum):
            self._values[f"class of {label}"] = type(value).__qualname__
            self._once(
                id(value),
                functools.partial(self._escape, self.known(value, label), type(value), label),
            )
        elif isinstance(value, types.BuiltinFunctionType) and _is_of_module(value):
            self.note_package(value.__module__ or "")
        elif value is os.environ:
            self._digester.say_opaque(label, "the whole environment")
        else:
            if not isinstance(value, str | int | float | bool | list | dict | tuple | None):
                self.note_package(type(value).__module__)
            if hasattr(value, "__wrapped__") and callable(value):
                self._once(id(value), functools.partial(self._use_call, self.known(value, label)))
            self._values[label] = value
            self._path(value, f"{label}, as a path")

    def _record_class(self, cls: type, label: str) -> None:
        if not is_user_class(cls):
            self.note_package(cls.__module__)
        elif issubclass(cls, enum.Enum):
            self._values[label] = {one.name: one.value for one in cls}
        else:
            self._once(id(cls), functools.partial(self._use_class, cls))

    def _path(self, value: Any, label: str) -> None:
        """A path that is relative means another file elsewhere."""
        if not isinstance(value, str | pathlib.PurePath) or not 0 < len(str(value)) < _LONGEST_PATH:
            return
        text = str(value)
        if (
            "\n" not in text
            and "\0" not in text
            and not os.path.isabs(text)
            and os.path.lexists(text)
        ):
            self._values[label] = os.path.realpath(text)

    def _meet(self, value: Any, label: str) -> None:
        """Whatever a digest only names."""
        self.record(value, label)

    def use_truth(self, maybe: Maybe) -> None:
        """Only whether it is true, or there at all."""
        for atom in maybe:
            if not isinstance(atom, Known) or not atom.label:
                continue
            value = atom.value
            if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum):
                self.record(value, atom.label)
            elif isinstance(value, list | tuple | dict | set):
                self._values[f"bool({atom.label})"] = bool(value)

    def use_contains(self, keys: Maybe, containers: Maybe) -> None:
        """``key in container``."""
        for container in containers:
            is_known = isinstance(container, Known) and isinstance(
                container.value, Mapping | argparse.Namespace
            )
            plain = [
                one.value for one in keys if isinstance(one, Known) and isinstance(one.value, str)
            ]
            if isinstance(container, Known) and is_known and len(plain) == len(keys) == 1:
                self._values[f"{plain[0]!r} in {container.label}"] = plain[0] in container.value
            else:
                self.use((container,))
        self.use(keys)

    def use_absent(self, label: str) -> None:
        self._texts.setdefault(label, Entry(label, ABSENT, ABSENT))

    def use_environment(self, key: str) -> bool:
        """Whether a variable counts: those of a rank aren't in the server's environment."""
        return not is_of_a_rank(key)

    # Code.

    def note_source(self, label: str, text: str, digest: str) -> None:
        """The source of a function; two of one name are told apart by their order."""
        number, name = 1, f"source of {label}"
        while name in self._texts and self._texts[name].digest != digest:
            number += 1
            name = f"source of {label} ({number})"
        self._texts[name] = Entry(name, text, digest)

    def note_package(self, module: str) -> None:
        if is_user_module(module):
            return
        found = package_version(module)
        if found is not None:
            label = f"version of {found[0]}"
            self._texts[label] = Entry(label, found[1], found[1])

    def use_file(self, module: str, path: str) -> None:
        """All of a module's source, and of the user's modules that it imports."""
        if (
            not path.endswith(".py")
            or not is_user_module(module)
            or ("file", path) in self._escaped
        ):
            return
        self._escaped.add(("file", path))
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            return
        self.note_source(f"module {module}", os.path.basename(path), sources.digest_of(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                if is_user_module(name):
                    self.use_unimported(name)

    def use_unimported(self, name: str) -> None:
        raise NotImplementedError

    # Objects of the user's classes.

    def _escape(self, receiver: Known | Made, cls: type | LocalClass, label: str) -> None:
        """An object that code which isn't the user's may do anything with: it calls its methods."""
        fields = receiver.fields if isinstance(receiver, Made) else None
        if isinstance(cls, LocalClass):
            names = [name for name in cls.functions if name not in _NOT_USED]
            if cls.bases == () and not _PROTOCOLS & set(names):
                names = []
                for one in (fields or {}).values():
                    self.use(one)
        else:
            if is_container(cls):
                if fields is None and isinstance(receiver, Known):
                    self._values[label] = receiver.value
                for one in (fields or {}).values():
                    self.use(one)
                return
            names = entry_points(cls)
            self._use_library_fields(receiver, cls, label)
        for name in names:
            # A property gives its value, a method what it returns.
            for atom in self.attribute(receiver, name):
                if isinstance(atom, Bound | Function):
                    self._use_call(atom)
                else:
                    self.use((atom,))

    def _use_library_fields(self, receiver: Known | Made, cls: type, label: str) -> None:
        """Fields that a base class of a library reads too."""
        read = names_of_library(cls)
        if isinstance(receiver, Made):
            for name, value in receiver.fields.items():
                if name in read:
                    self.use(value)
            return
        value = receiver.value
        for name, one in list(getattr(value, "__dict__", {}).items()):
            if name in read:
                self.record(one, f"{label}.{name}")
        builtin = next((base for base in _BUILTIN if isinstance(value, base)), None)
        if builtin is not None:
            self._values[f"items of {label}"] = builtin(value)

    # The end.

    def entries(self) -> list[Entry]:
        """Everything, once all that is to do is done."""
        done: set[str] = set()
        while self._todo or len(done) < len(self._values):
            while self._todo:
                self._todo.pop(0)()
            for label in [label for label in self._values if label not in done]:
                done.add(label)
                self._enter(label, self._values[label], 3)
        return [self._texts[label] for label in sorted(self._texts)]

    def _enter(self, label: str, value: Any, depth: int) -> None:
        parts = _fields_of(value) if depth else None
        if parts is None:
            self._texts[label] = Entry(label, shown(value), self._digester.digest(value, label))
            return
        for name, one in parts:
            inside = f"{label}[{name!r}]" if isinstance(value, dict) else f"{label}.{name}"
            self._enter(inside, one, depth - 1)

    @property
    def opaque(self) -> dict[str, str]:
        return self._digester.opaque


def _is_of_module(function: types.BuiltinFunctionType) -> bool:
    owner = function.__self__
    return (
        owner is None
        or isinstance(owner, types.ModuleType | type)
        or "." not in function.__qualname__
    )


def _fields_of(value: Any) -> list[tuple[str, Any]] | None:
    """The entries of a configuration, so that a message can name the one that differs."""
    found: Any = None
    if type(value) is dict:
        found = value
    elif isinstance(value, argparse.Namespace | types.SimpleNamespace):
        found = vars(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = vars(value) if hasattr(value, "__dict__") else None
    is_one = found and len(found) <= _MOST_FIELDS and all(isinstance(key, str) for key in found)
    return list(found.items()) if is_one else None


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


def library_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base is not object and not is_user_class(base)]


def is_container(cls: type) -> bool:
    """Whether objects of a class just hold values, as a configuration does."""
    if library_bases(cls):
        return False
    names = {name for base in cls.__mro__ if base is not object for name in vars(base)}
    return not names & _PROTOCOLS


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
