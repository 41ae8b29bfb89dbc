"""Python's own functions and methods: many look at less than all of what they are given."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import importlib
import json
import logging
import operator
import os
import pathlib
import pprint
import re
import shutil
import sys
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from feedline._identity.command_line import Parser
from feedline._identity.digests import HOW_IT_LOADS, is_data_loader
from feedline._identity.lookups import Lookups
from feedline._identity.values import (
    Atom,
    Derived,
    Items,
    Known,
    LibraryMethod,
    Made,
    Maybe,
    Parent,
    Partial,
    Table,
    constants,
    derived,
    join,
    text_of,
)

# What gives its argument back, or a copy of it.
_HANDS_ON_BY_NAME = {"OmegaConf.to_container", "OmegaConf.create", "OmegaConf.to_object"}
# What tells the user something, or makes a folder for it: nothing that is loaded depends on it.
_TELLS = {
    id(one)
    for one in (
        print,
        id,
        os.makedirs,
        os.mkdir,
        os.remove,
        os.unlink,
        shutil.rmtree,
        pprint.pprint,
    )
}
_TELLING_MODULES = {"logging", "warnings", "_warnings", "traceback"}
_TELLING_METHODS = {"mkdir", "touch", "write_text", "write_bytes"}
# What does nothing but compute something from what it is given.
_COMPUTES = {
    id(one)
    for one in (
        *(abs, all, any, ascii, bin, bool, bytes, chr, complex, divmod, enumerate, float, format),
        *(frozenset, hash, hex, int, len, max, min, oct, ord, pow, range, repr, reversed, round),
        *(set, slice, sorted, str, sum, zip, operator.attrgetter, operator.itemgetter),
        *(pathlib.Path, pathlib.PurePath, pathlib.PosixPath, json.dumps),
    )
}
_COMPUTING_MODULES = {"posixpath", "genericpath", "math", "time"}
_PLAIN: tuple[type, ...] = (
    *(str, bytes, int, float, complex, pathlib.PurePath, uuid.UUID),
    *(datetime.date, datetime.time, datetime.timedelta),
)
# What changes a folder that may be read later.
_MOVES = {"rename", "symlink_to", "hardlink_to", "link_to"}
_COMPUTING_METHODS = {
    name for kind in (str, bytes, pathlib.Path) for name in dir(kind) if name[0] != "_"
} - _MOVES
# What is written to: whatever is told to it is only told.
_SINK = Known(logging.getLogger("feedline"), "")
# What writes something to a file that it is given.
_WRITES = {"dump", "safe_dump", "writer", "DictWriter", "save", "savetxt", "write"}


class Standard(Lookups):
    """What calling them reaches, and what they may return."""

    def call_standard(
        self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe | None:
        """What a function gives that looks at less than all of what it is given; or None."""
        if value is logging.getLogger:
            return (_SINK,)
        if _tells(value):
            return ()
        if getattr(value, "__name__", "") in _WRITES and any(_SINK in one for one in args):
            return (_SINK,)
        handle = _HANDLED.get(id(value))
        found = handle(self, value, args, keywords) if handle is not None and args else None
        if found is not None:
            return found
        if getattr(value, "__qualname__", "") in _HANDS_ON_BY_NAME and args:
            return args[0]
        if value is types.SimpleNamespace and keywords:
            return self._hand_on(value, args, keywords)
        module = getattr(value, "__module__", None)
        if id(value) in _COMPUTES or (module in _COMPUTING_MODULES and callable(value)):
            return self._compute(value, args, keywords)
        return None

    def _open(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        mode = text_of(args[1] if len(args) > 1 else keywords.get("mode", ()))
        return (_SINK,) if mode is not None and mode[:1] in "wax" else None

    def _partial(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        return (Partial(args[0], args[1:], keywords),) if args[0] else None

    def _getenv(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        found = self.item(self.known(os.environ, "os.environ"), args[0])
        return join(found, *args[1:2])

    def _methodcaller(
        self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe | None:
        name = text_of(args[0])
        if name is None or len(args) > 1 or keywords:
            return None
        return (self.known(operator.methodcaller(name), ""),)

    def _reordered(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``enumerate``, ``reversed`` and ``sorted``: the same elements."""
        each = None if keywords else self.each(args[0])
        if each is None:
            return None
        if value is sorted:
            return (Items([join(*each)], count=join(*map(self.count_of, args[0]))),)
        if value is enumerate:
            return (Items([(Items([(), one]),) for one in each]),)
        return (Items(each[::-1]),)

    def _compute(
        self, function: Callable[..., Any], args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if function in (str, repr, format) and args:
            args = [self.as_text(args[0]), *args[1:]]
        if function is str and len(args) == 1:
            plain = constants(args[0])
            if plain is not None and len(plain) == 1 and isinstance(plain[0], str | int):
                return derived(*args, value=str(plain[0]))
        return derived(*args, *keywords.values())

    def as_text(self, maybe: Maybe) -> Maybe:
        """What an object of the user's is shown as, where its class says so."""
        found: list[Maybe] = []
        for atom in maybe:
            names = ("__format__", "__str__", "__repr__")
            methods = join(*(self._user_method(atom, name) for name in names))
            found.append(self.call(methods, [], {}) if methods else (atom,))
        return join(*found)

    def _types(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        """``isinstance``: only what something is counts."""
        for atom in args[0]:
            if isinstance(atom, Known) and atom.label:
                self.put(f"type({atom.label})", type(atom.value).__qualname__)
            elif isinstance(atom, Derived):
                self.use((atom,))
        return ()

    def _type(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        return join(*map(self._type_of, args[0])) if len(args) == 1 else None

    def _type_of(self, atom: Atom) -> Maybe:
        if isinstance(atom, Known):
            return (self.known(type(atom.value), type(atom.value).__qualname__),)
        if isinstance(atom, Made):
            return self.attribute(atom, "__class__")
        return derived((atom,))

    def _replaced(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        return join(*(self._copied(value, one, keywords) for one in args[0]))

    def _copied(self, value: Any, atom: Atom, keywords: dict[str, Maybe]) -> Maybe:
        """What ``dataclasses.replace`` and ``asdict`` make: field by field."""
        fields: dict[str, Maybe] | None = None
        if isinstance(atom, Made):
            fields = dict(atom.fields)
        elif isinstance(atom, Known) and dataclasses.is_dataclass(atom.value):
            names = [one.name for one in dataclasses.fields(atom.value)]
            fields = {name: self.attribute(atom, name) for name in names}
        if fields is None:
            self.use((atom,))
            return self.use_all([], keywords)
        fields.update(keywords)
        if value is dataclasses.asdict:
            return (Table(dict(fields)),)
        cls = atom.cls if isinstance(atom, Made) else type(atom.value)  # type: ignore[union-attr]
        return (Made(cls, fields),)

    def _expand(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        first = args[0]
        environment = self.known(os.environ, "os.environ")
        found: list[Maybe] = []
        for text in constants(first) or ():
            for pair in re.findall(r"\$(\w+)|\$\{([^}]*)\}", str(text)):
                found.append(self.item(environment, (Known(pair[0] or pair[1], ""),)))
        if constants(first) is None:
            self.say_opaque("os.path.expandvars", "which variables it looks up")
        return derived(first, *found)

    def _import(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        self.use(args[0])
        names = constants(args[0])
        if names is None:
            self.say_opaque("import_module", "a module whose name is not known before")
            return ()
        return join(*(self.module(str(name)) for name in names))

    def _apply(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """Functions that are called with each element."""
        if len(args) < 2:
            return None
        function, inside = args[0], [self.elements(one) for one in args[1:]]
        count = join(*(self.count_of(atom) for one in args[1:] for atom in one))
        if value is map:
            return (Items([self.call(function, inside, {})], count=count),)
        if value is filter:
            self.use(self.call(function, inside[:1], {}))
            return (Items(inside[:1], count=count),)
        start = join(inside[0], *args[2:3])
        once = self.call(function, [start, inside[0]], {})
        return join(start, self.call(function, [join(start, once), inside[0]], {}))

    def call_by_name(self, caller: operator.methodcaller, args: list[Maybe]) -> Maybe:
        reduced: Any = caller.__reduce__()
        name, *given = reduced[1]
        if not isinstance(name, str):  # with keyword arguments it is a partial
            self.use((self.known(caller, "methodcaller"),))
            return self.use_all(args, {})
        found = join(*(self.attribute(one, name) for one in args[0]))
        return self.call(found, [(self.known(one, f"methodcaller.{name}"),) for one in given], {})

    def _hand_on(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        first = args[0] if args else ()
        if value is vars:
            return join(
                *(
                    self.attribute(one, "__dict__")
                    if not isinstance(one, Made)
                    else (Table(dict(one.fields)),)
                    for one in first
                )
            )
        if keywords:
            table = Table({})
            self.merge(table, first)
            table.items.update(keywords)
            return (table,)
        # A copy, for what is added to it isn't in the other.
        return tuple(_copy_of(one) for one in first)

    def _get(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        if len(args) < 2:
            return None
        names = constants(args[1])
        if names is None or not all(isinstance(one, str) for one in names):
            if any(isinstance(one, Known | Made) for one in args[0]):
                self.say_opaque("getattr", "an attribute whose name is not known before")
            return self.use_all(args, {})
        self.use(args[1])
        found = join(*(self.attribute(one, name) for one in args[0] for name in names))
        if value is hasattr:
            self.use_truth(found)
            return ()
        return join(found, *args[2:3])

    def call_library_method(
        self, atom: LibraryMethod, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        receiver, name = atom.receiver, atom.name
        value = receiver.value if isinstance(receiver, Known) else None
        if tells(atom):
            return ()
        is_mapping = isinstance(receiver, Table) or (
            isinstance(receiver, Known) and (isinstance(value, Mapping) or hasattr(value, "keys"))
        )
        if is_mapping and name == "setdefault" and args and isinstance(receiver, Table):
            found = self.item(receiver, args[0])
            self.set_item(receiver, args[0], join(*args[1:2]))
            return join(found, *args[1:2])
        if is_mapping and name in ("get", "pop", "setdefault") and args:
            return join(self.item(receiver, args[0]), *args[1:2])
        if is_mapping and name == "copy":
            return (_copy_of(receiver),)
        if name in ("items", "values", "keys"):
            entries = self.entries_of(receiver, name)
            if entries is not None:
                return entries
        if isinstance(receiver, Table) and name == "update":
            for one in args:
                self.merge(receiver, one)
            for key, one in keywords.items():
                self.add_entry(receiver, key, one)
            return ()
        if isinstance(receiver, Items) and name in ("append", "add", "insert", "extend", "update"):
            for one in args:
                self.add_item(receiver, self.elements(one) if name in ("extend", "update") else one)
            return ()
        if isinstance(receiver, Items) and name == "pop":
            return join(*receiver.items)
        if isinstance(receiver, Items) and name == "copy":
            return (_copy_of(receiver),)
        if isinstance(receiver, Parser):
            return self._declare(receiver, name, args, keywords)
        if name in ("_asdict", "_replace") and hasattr(value, "_fields"):
            names: tuple[str, ...] = value._fields  # type: ignore[union-attr]
            fields = {one: self.attribute(receiver, one) for one in names}
            return (Table({**fields, **keywords}),)
        if isinstance(value, _PLAIN) and name not in _MOVES:
            return self._call_plain(receiver, name, args, keywords)
        if isinstance(receiver, Derived) and name in _COMPUTING_METHODS:
            if isinstance(receiver.value, str):
                return self._call_plain(receiver, name, args, keywords)
            return derived((receiver,), *args, *keywords.values())
        if isinstance(receiver, Items | Table | Derived):
            # Whatever it does, with what it is given: to the container, or with it.
            self.use_all(args, keywords)
            return derived((receiver,))
        if name in ("append", "add", "extend", "update", "insert", "setdefault"):
            self.note_filled(receiver)
        # What a base class is told when an object is made says nothing of the object's methods.
        if isinstance(receiver, Parent) and name in ("__init__", "__new__"):
            owner = receiver.owner if isinstance(receiver.owner, type) else object
            return self.use_all(args, what_is_loaded(owner, keywords))
        self.use((receiver,))
        return self.use_all(args, keywords)

    def _declare(
        self, parser: Parser, name: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        """``add_argument`` and its like."""
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return (parser,)
        names = [constants(one) for one in args]
        given = {key: constants(one) for key, one in keywords.items() if key != "default"}
        flat = [one[0] for one in names if one and len(one) == 1]
        shape = {key: one[0] for key, one in given.items() if one and len(one) == 1}
        is_clear = all(key in shape for key in ("dest", "nargs", "action") if key in given)
        if name == "add_argument" and is_clear and len(flat) == len(args):
            parser.declare(flat, shape, keywords.get("default", (Known(None, ""),)))
        else:
            parser.is_clear = False
            self.use_all(args, keywords)
        return ()

    def _call_plain(
        self, receiver: Atom, name: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        """A method of a text or a number: what it gives depends on nothing else."""
        text = text_of((receiver,))
        found_args = [constants(one) for one in args]
        given = [one[0] for one in found_args if one and len(one) == 1]
        everything: list[Maybe] = [(receiver,), *args, *keywords.values()]
        if text is None or keywords or len(given) != len(args):
            return derived(*everything)
        try:
            found = getattr(text, name)(*given)
        except Exception:
            return derived(*everything)
        if isinstance(found, str):
            return derived(*everything, value=found)
        if isinstance(found, list | tuple) and all(isinstance(one, str) for one in found):
            return (Items([derived(*everything, value=one) for one in found]),)
        return derived(*everything)


_HANDLED: dict[int, Callable[..., Maybe | None]] = {
    id(function): handle
    for handle, functions in (
        (Standard._open, (open,)),
        (Standard._types, (isinstance, issubclass, callable)),
        (Standard._type, (type,)),
        (Standard._hand_on, (copy.copy, copy.deepcopy, vars, dict, list, tuple, iter)),
        (Standard._replaced, (dataclasses.replace, dataclasses.asdict)),
        (Standard._get, (getattr, hasattr)),
        (Standard._partial, (functools.partial,)),
        (Standard._getenv, (os.getenv,)),
        (Standard._expand, (os.path.expandvars,)),
        (Standard._import, (importlib.import_module, __import__)),
        (Standard._apply, (map, filter, functools.reduce)),
        (Standard._methodcaller, (operator.methodcaller,)),
        (Standard._reordered, (enumerate, reversed, sorted)),
    )
    for function in functions
}


def tells(atom: Atom) -> bool:
    """Whether calling something only tells somebody something."""
    if isinstance(atom, Known):
        return _tells(atom.value)
    if not isinstance(atom, LibraryMethod):
        return False
    value = atom.receiver.value if isinstance(atom.receiver, Known) else None
    is_output = value is not None and (value is sys.stdout or value is sys.stderr)
    return is_output or isinstance(value, logging.Logger) or atom.name in _TELLING_METHODS


def _tells(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    is_function = isinstance(function, types.FunctionType | types.BuiltinFunctionType)
    return id(function) in _TELLS or (is_function and module in _TELLING_MODULES)


def what_is_loaded(cls: type, keywords: dict[str, Maybe]) -> dict[str, Maybe]:
    """The arguments of a class without those that say how a DataLoader works."""
    if not is_data_loader(cls):
        return keywords
    return {key: one for key, one in keywords.items() if key not in HOW_IT_LOADS}


def _copy_of(atom: Atom) -> Atom:
    if isinstance(atom, Items):
        return Items(list(atom.items), atom.order, atom.count)
    if isinstance(atom, Table):
        return Table(dict(atom.items), atom.rest)
    return atom
