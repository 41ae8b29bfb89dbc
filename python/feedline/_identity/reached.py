"""What was used of all that the user's code can reach: labels, short values and digests."""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import enum
import functools
import os
import pathlib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from feedline._identity import sources
from feedline._identity.command_line import CommandLine, Parser
from feedline._identity.digests import OF_A_RUN, Digester, is_data_loader, shown
from feedline._identity.entries import Entry, folded
from feedline._identity.origin import (
    PROTOCOLS,
    is_container,
    is_user,
    is_user_class,
    is_user_function,
    is_user_module,
    library_bases,
    package_version,
)
from feedline._identity.values import (
    Atom,
    Bound,
    Derived,
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
    join,
)
from feedline._shard import is_of_a_rank

ABSENT = "(not there)"
# A configuration with more entries than this is compared as one.
_MOST_FIELDS = 200
_LONGEST_PATH = 1000
# Of so many objects of a class the fields are told apart.
_MOST_OF_A_CLASS = 500
# Methods by which Python, torch or a feed use an object; the rest is the user's own affair.
_NOT_USED = {
    *("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__"),
    *("__repr__", "__str__", "__format__", "__eq__", "__ne__", "__hash__", "__del__", "__sizeof__"),
}
_ASKED_FOR = {"set_epoch", "state_dict", "load_state_dict", "collate_fn"}
_BUILTIN: tuple[Any, ...] = (dict, list, tuple, set, str, bytes, int, float)


class Reached:
    """Collects what is used; ``Follower`` finds out what that is."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Begin with nothing; names of ``root_globals`` need no module before them."""
        self._root_globals = root_globals
        self._root_name = str(root_globals.get("__name__", "__main__"))
        # By label: different things may have one, and are numbered.
        self._values: dict[str, list[Any]] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._owners: dict[str, dict[int, int]] = {}
        self._texts: dict[str, Entry] = {}
        self._todo: list[Callable[[], object]] = []
        # By address; what has an address here must not go away meanwhile.
        self._escaped: set[Any] = set()
        self._alive: list[Any] = []
        # Fields that the user's code sets on objects that exist already.
        self._written: dict[int, dict[str, Maybe]] = {}
        # Labels of such fields, and of dicts and lists that the user's code adds to.
        self._met: collections.Counter[type] = collections.Counter()
        self._lazy: set[str] = set()
        # Labels of what a library was given, and which.
        self._given_to: dict[str, str] = {}
        self._caches: set[str] = set()
        self._digester = Digester(self._meet, self._root_name)

    # Of the parts that follow.

    def call(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        raise NotImplementedError

    def attribute(self, base: Any, name: str) -> Maybe:
        raise NotImplementedError

    def construct(
        self, cls: type | LocalClass, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        raise NotImplementedError

    def module(self, name: str, *, quietly: bool = False) -> Maybe:
        raise NotImplementedError

    # Labels.

    def distinct(self, label: str, owner: object) -> str:
        """The label of something that belongs to an object; other objects' are numbered."""
        self._alive.append(owner)
        owners = self._owners.setdefault(label, {})
        number = owners.setdefault(id(owner), len(owners) + 1)
        return label if number == 1 else f"{label} ({number})"

    def put(self, label: str, value: Any) -> None:
        """A value counts, under a label."""
        values = self._values.setdefault(label, [])
        if not any(one is value for one in values[-8:]):
            values.append(value)

    def say_opaque(self, label: str, what: str) -> None:
        self._digester.say_opaque(label, what)

    def known(self, value: Any, label: str) -> Known:
        self._alive.append(value)
        return Known(value, label)

    def global_label(self, name: str, globals_: dict[str, Any]) -> str:
        module = globals_.get("__name__")
        is_root = globals_ is self._root_globals or module in ("__main__", self._root_name)
        return name if is_root else f"{module}.{name}"

    # Using.

    def use(self, maybe: Maybe) -> None:
        """All of it counts from here on."""
        # Not by recursion: what a loop puts together may be nested deeply.
        left = list(reversed(maybe))
        while left:
            atom = left.pop()
            if isinstance(atom, Known):
                self.record(atom.value, atom.label)
            elif isinstance(atom, Items | Table | Derived):
                if not atom.is_used:
                    atom.is_used = True
                    left += [one for part in reversed(atom.parts()) for one in reversed(part)]
                    self._alive.append(atom)
                if isinstance(atom, Items):
                    self.use_order(atom)
            elif isinstance(atom, Made):
                self._once(id(atom), functools.partial(self._escape, atom, atom.cls, ""))
                self._alive.append(atom)
            elif isinstance(atom, LibraryMethod | Parent):
                left.append(atom.receiver)
            elif isinstance(atom, CommandLine):
                self.put("sys.argv", list(atom.argv))
            elif isinstance(atom, Parser):
                for _, _, default in atom.declared:
                    left += default
            elif isinstance(atom, LocalClass):
                self._once(id(atom), functools.partial(self._use_class, atom))
                self._alive.append(atom)
            else:
                self._once(self._key(atom), functools.partial(self._use_call, atom))
                self._alive.append(atom)

    def use_all(self, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        for one in (*args, *keywords.values()):
            self.use(one)
        return ()

    def use_order(self, items: Items) -> None:
        if items.order is not None:
            label, keys = items.order
            self.put(f"order of {label}", keys)

    def add_item(self, items: Items, value: Maybe) -> None:
        items.items.append(value)
        if items.is_used:
            self.use(value)

    def add_entry(self, table: Table, key: Any, value: Maybe) -> None:
        table.items[key] = value
        if table.is_used:
            self.use(value)

    def add_rest(self, table: Table, value: Maybe) -> None:
        table.rest = join(table.rest, value)
        if table.is_used:
            self.use(value)

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
            self.put(label, value)
            self._once(id(value), functools.partial(self._use_call, self.known(value, label)))
        elif isinstance(value, type):
            self._record_class(value, label)
        elif is_user_class(type(value)) and not isinstance(value, enum.Enum):
            self.put(f"class of {label}", type(value).__qualname__)
            self._once(
                id(value),
                functools.partial(self._escape, self.known(value, label), type(value), label),
            )
        elif isinstance(value, types.BuiltinFunctionType) and _is_of_module(value):
            self.note_package(value.__module__ or "")
        elif value is os.environ or label == "globals()":
            self.say_opaque(label, "all of it: the name that is looked up is not known")
        else:
            if not isinstance(value, str | int | float | bool | list | dict | tuple | None):
                self.note_package(type(value).__module__)
            if hasattr(value, "__wrapped__") and callable(value):
                self._once(id(value), functools.partial(self._use_call, self.known(value, label)))
            self.put(label, value)
            self._path(value, f"{label}, as a path")

    def _record_class(self, cls: type, label: str) -> None:
        if not is_user_class(cls):
            self.note_package(cls.__module__)
        elif issubclass(cls, enum.Enum):
            self.put(label, {one.name: one.value for one in cls})
        else:
            self._once(id(cls), functools.partial(self._use_class, cls))

    def _path(self, value: Any, label: str) -> None:
        """A path that is relative means another file elsewhere; so does a list of them."""
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if not isinstance(value, str | pathlib.PurePath) or not 0 < len(str(value)) < _LONGEST_PATH:
            return
        text = str(value)
        if "\n" not in text and "\0" not in text and not os.path.isabs(text):
            path = os.path.realpath(text)
            self._texts.setdefault(label, Entry(label, path, path, "path"))

    def _meet(self, value: Any, label: str) -> bool:
        """What a digest names: record it, or say that it belongs into the digest as a whole.

        That is so for objects that just hold values, and for those of a class with very many.
        """
        cls = type(value)
        if is_user_class(cls) and not isinstance(value, type):
            self._met[cls] += 1
            if is_container(cls) or self._met[cls] > _MOST_OF_A_CLASS:
                self._once(("methods", id(cls)), functools.partial(self.use_methods, cls))
                return False
        self.record(value, label)
        return True

    def use_truth(self, maybe: Maybe) -> None:
        """Only whether it is true, or there at all."""
        for atom in maybe:
            if isinstance(atom, Derived):
                self.use((atom,))
            if isinstance(atom, Known | Made):
                self._use_truth_of_user_object(atom)
            if not isinstance(atom, Known) or not atom.label:
                continue
            value = atom.value
            if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum):
                self.record(value, atom.label)
            elif isinstance(value, list | tuple | dict | set):
                self.put(f"bool({atom.label})", bool(value))

    def _use_truth_of_user_object(self, atom: Known | Made) -> None:
        cls = type(atom.value) if isinstance(atom, Known) else atom.cls
        if isinstance(cls, type) and is_user_class(cls):
            for name in ("__bool__", "__len__"):
                if isinstance(getattr(cls, name, None), types.FunctionType):
                    self.use(self.call(self.attribute(atom, name), [], {}))
                    return

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
                self.put(f"{plain[0]!r} in {container.label}", plain[0] in container.value)
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
        fields = receiver.fields if isinstance(receiver, Made) else {}
        if isinstance(cls, LocalClass):
            names = [name for name in cls.functions if name not in _NOT_USED]
            if cls.bases == () and not PROTOCOLS & set(names):
                for one in fields.values():
                    self.use(one)
        elif is_container(cls):
            if isinstance(receiver, Known):
                self.put(label, receiver.value)
            for one in fields.values():
                self.use(one)
            self.use_methods(cls)
            return
        else:
            names = entry_points(cls)
            self._use_library_fields(receiver, cls, label)
        for name in names:
            # A property gives its value, a method what it returns.
            for atom in self.attribute(receiver, name):
                if isinstance(atom, Bound | Function):
                    self._use_call(atom)
                else:
                    self.use((atom,))

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
        self._alive.append(made)
        for name in names:
            for atom in self.attribute(made, name):
                self._once((id(cls), name), functools.partial(self._use_call, atom))

    def _use_library_fields(self, receiver: Known | Made, cls: type, label: str) -> None:
        """Fields that a base class of a library reads too."""
        read = names_of_library(cls) - (OF_A_RUN if is_data_loader(cls) else frozenset())
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
            self.put(f"items of {label}", builtin(value))

    # The end.

    def entries(self) -> list[Entry]:
        """Everything, once all that is to do is done."""
        done: dict[str, int] = {}
        while True:
            while self._todo:
                self._todo.pop(0)()
            new = [label for label, one in self._values.items() if done.get(label, 0) < len(one)]
            if not new:
                break
            for label in new:
                first, done[label] = done.get(label, 0), len(self._values[label])
                for value in self._values[label][first : done[label]]:
                    self._enter(self._numbered(label, value), value, 3)
        for label, (what, digest) in self._digester.unsure.items():
            self._texts[label] = Entry(label, what, digest, "unsure")
        return folded(sorted(map(self._of_kind, self._texts.values())))

    def _of_kind(self, entry: Entry) -> Entry:
        kind = entry.kind or self._kind(entry.label)
        is_absent = kind == "lazy" and entry.digest == ABSENT
        return entry._replace(kind=kind, digest="" if is_absent else entry.digest)

    def _numbered(self, label: str, value: Any) -> str:
        """The label, with a number if there are several values of that label."""
        values = self._values[label]
        if len(values) == 1:
            return label
        numbers = self._numbers.setdefault(label, {self._digester.digest(values[0], label): 1})
        number = numbers.setdefault(self._digester.digest(value, label), len(numbers) + 1)
        return label if number == 1 else f"{label} ({number})"

    def _enter(self, label: str, value: Any, depth: int, why: str = "") -> None:
        parts = _fields_of(value) if depth else None
        if parts is None:
            kind = self._kind(label)
            is_empty = value is None or (isinstance(value, list | dict | set) and not value)
            is_unfilled = kind == "lazy" and is_empty
            digest = "" if is_unfilled else self._digester.digest(value, label)
            self._texts[label] = Entry(label, shown(value), digest, kind, why)
            return
        if label in self._given_to:
            why = f"all of {label} goes to {self._given_to[label]}"
        for name, one in parts:
            inside = f"{label}[{name!r}]" if isinstance(value, dict) else f"{label}.{name}"
            if name == "_target_" and isinstance(one, str):
                self._use_target(one)
            self._enter(inside, one, depth - 1, why)

    def _kind(self, label: str) -> str:
        """Fields that the loader's own code sets are filled when it runs: before or after."""
        bare = re.sub(r"^(class of |items of |order of |\w+\()", "", label)
        for kind, labels in (("unsure", self._caches), ("lazy", self._lazy)):
            if any(
                bare == one or bare.startswith((f"{one}.", f"{one}[", f"{one})", f"{one} ("))
                for one in labels
            ):
                return kind
        return ""

    def _use_target(self, path: str) -> None:
        """What a configuration names for a library to make: "package.module.Class"."""
        module, _, name = path.rpartition(".")
        for found in self.module(module) if module and is_user_module(module) else ():
            self.use(self.attribute(found, name))

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
