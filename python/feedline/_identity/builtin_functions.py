"""Python's own functions: many look at less than all of what they are given."""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import functools
import importlib
import importlib.machinery
import inspect
import json
import logging
import operator
import os
import pathlib
import pprint
import re
import types
from collections.abc import Callable
from typing import Any

from feedline._identity.part import Part
from feedline._identity.telling import EXITS, SINK, WRITES, tells_function
from feedline._identity.values import (
    UNKNOWN,
    Atom,
    Choice,
    Derived,
    Function,
    Items,
    Known,
    LibraryMethod,
    Made,
    Maybe,
    Partial,
    Scope,
    Table,
    TypeOf,
    chosen,
    constants,
    content_of,
    derived,
    is_constant,
    join,
    text_of,
    truth,
    without_choices,
)

# What gives its argument back, or a copy of it.
_HANDS_ON_BY_NAME = {"OmegaConf.to_container", "OmegaConf.create", "OmegaConf.to_object"}
# What does nothing but compute something from what it is given.
_COMPUTES = {
    id(one)
    for one in (
        *(abs, all, any, ascii, bin, bool, bytes, chr, complex, divmod, enumerate, float, format),
        *(frozenset, hash, hex, int, len, max, min, oct, ord, pow, range, repr, reversed, round),
        *(set, slice, sorted, str, sum, zip, next, operator.attrgetter, operator.itemgetter),
        *(pathlib.Path, pathlib.PurePath, pathlib.PosixPath, json.dumps, pprint.pformat),
    )
}
_MAKES_PATH = (
    *(pathlib.Path, pathlib.PurePath, os.path.join, os.path.abspath, os.path.expanduser),
    *(os.path.dirname, os.path.basename, os.path.normpath),
)
_COMPUTING_MODULES = {
    *("posixpath", "genericpath", "math", "time"),
    *("hashlib", "_hashlib", "_blake2", "zlib", "base64", "textwrap"),
}


_MAKES_EMPTY = {id(dict), id(list), id(set)}
# A reduction over more elements than this isn't followed one by one.
_MOST_STEPS = 32


class BuiltinFunctions(Part):
    """What calling them reaches, and what they may return."""

    def call(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """What a function gives that looks at less than all of what it is given; or None."""
        if value is logging.getLogger:
            return (SINK,)
        if tells_function(value):
            return ()
        if id(value) in EXITS:
            self._effects.raises += 1
            return ()
        if getattr(value, "__name__", "") in WRITES and any(SINK in one for one in args):
            return (SINK,)
        if id(value) in _MAKES_EMPTY and not args and not keywords:
            return (Table({}) if value is dict else Items([]),)
        if value is collections.deque:
            each = self._follower.containers.each(args[0]) if args else []
            how_many = join(*args[1:], *keywords.values())
            return None if each is None else (Items(list(each), count=how_many),)
        parsed = self._follower.files.parse(value, args[0]) if args else None
        if parsed is not None:
            return parsed
        handle = _HANDLED.get(id(value))
        found = handle(self, value, args, keywords) if handle is not None and args else None
        if found is not None:
            return found
        if getattr(value, "__qualname__", "") in _HANDS_ON_BY_NAME and args:
            return args[0]
        is_progress = str(getattr(value, "__module__", "")).partition(".")[0] in ("tqdm", "rich")
        if is_progress and getattr(value, "__name__", "") in ("tqdm", "track") and args:
            return args[0]
        if value is inspect.signature or value is inspect.getfullargspec:
            return self._follower.standard_objects.signature(value, args)
        method = self._of_builtin_class(value, args)
        if method is not None:
            return method
        if value is types.SimpleNamespace and keywords:
            return self._hand_on(value, args, keywords)
        module = getattr(value, "__module__", None)
        if id(value) in _COMPUTES or (module in _COMPUTING_MODULES and callable(value)):
            return self._compute(value, args, keywords)
        return None

    def _open(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        mode = args[1] if len(args) > 1 else keywords.get("mode")
        return self._follower.files.open(args[0], mode)

    def _partial(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        return (Partial(args[0], args[1:], keywords),) if args[0] else None

    def _getenv(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        found = self._follower.containers.item(
            self._recorder.known(os.environ, "os.environ"), args[0]
        )
        return join(found, *args[1:2])

    def _methodcaller(
        self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe | None:
        name = text_of(args[0])
        if name is None or len(args) > 1 or keywords:
            return None
        self._follower.uses.use(args[0])
        return (self._recorder.known(operator.methodcaller(name), ""),)

    def _item(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``operator.getitem``."""
        if len(args) != 2:
            return None
        return join(*(self._follower.containers.item(one, args[1]) for one in args[0]))

    def _zip(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        every = [self._follower.containers.each(one) for one in args]
        columns = [one for one in every if one is not None]
        if len(columns) < len(args) or len({len(one) for one in columns}) != 1:
            return None
        rows: list[Maybe] = [(Items(list(row)),) for row in zip(*columns, strict=True)]
        counts = (self._follower.containers.count_of(atom) for one in args for atom in one)
        return (Items(rows, count=join(*counts)),)

    def _getter(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``attrgetter("size")`` and ``itemgetter("size")``, as the function that they are."""
        names = constants(args[0]) if len(args) == 1 else None
        if names is None or len(names) != 1 or not all(map(is_constant, args[0])):
            return None
        if value is operator.attrgetter and not isinstance(names[0], str):
            return None
        how = f".{names[0]}" if value is operator.attrgetter else f"[{names[0]!r}]"
        node = ast.parse(f"lambda one: one{how}", mode="eval").body
        assert isinstance(node, ast.Lambda), "as it stands there"
        return (Function(node, Scope({}, None, {})),)

    def _reordered(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``enumerate``, ``reversed`` and ``sorted``: the same elements."""
        each = None if keywords else self._follower.containers.each(args[0])
        if each is None:
            return None
        if value is sorted:
            return (
                Items([join(*each)], count=join(*map(self._follower.containers.count_of, args[0]))),
            )
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
        plain = [one.value for maybe in args for one in maybe if isinstance(one, Known | Derived)]
        makes_path = function in _MAKES_PATH and len(plain) == len(args) and not keywords
        if makes_path and all(isinstance(one, str | pathlib.PurePath) for one in plain):
            return derived(*args, value=function(*plain))
        return derived(*args, *keywords.values())

    def as_text(self, maybe: Maybe) -> Maybe:
        """What an object of the user's is shown as, where its class says so."""
        found: list[Maybe] = []
        for atom in maybe:
            names = ("__format__", "__str__", "__repr__")
            methods = join(*(self._follower.attributes.user_method(atom, name) for name in names))
            found.append(self._follower.calls.call(methods, [], {}) if methods else (atom,))
        return join(*found)

    def _types(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        """``isinstance``: only what something is counts."""
        plain = without_choices(args[0])
        decided: Any = UNKNOWN
        if value is isinstance and len(plain) == 1 and len(args) == 2:
            cls, kinds = _class_of(plain[0]), _classes(args[1])
            if cls is not None and kinds is not None:
                decided = issubclass(cls, kinds)
        return (TypeOf(args[0], decided),)

    def _type(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        return join(*map(self._type_of, args[0])) if len(args) == 1 else None

    def _type_of(self, atom: Atom) -> Maybe:
        if isinstance(atom, Known):
            return (self._recorder.known(type(atom.value), type(atom.value).__qualname__),)
        if isinstance(atom, Made):
            return self._follower.attributes.get(atom, "__class__")
        return derived((atom,))

    def _fields(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``dataclasses.fields``: their names are a part of the class's source."""
        cls = _class_of(args[0][0]) if len(args[0]) == 1 else None
        if cls is type and isinstance(args[0][0], Known):
            cls = args[0][0].value
        if cls is None or not dataclasses.is_dataclass(cls):
            return None
        found: list[Maybe] = []
        for one in dataclasses.fields(cls):
            default = self._recorder.known(one.default, f"{cls.__qualname__}.{one.name}")
            found.append((Table({"name": (Known(one.name, ""),), "default": (default,)}),))
        return (Items(found),)

    def _replaced(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        return join(*(self._copied(value, one, keywords) for one in args[0]))

    def _copied(self, value: Any, atom: Atom, keywords: dict[str, Maybe]) -> Maybe:
        """What ``dataclasses.replace`` and ``asdict`` make: field by field."""
        fields: dict[str, Maybe] | None = None
        if isinstance(atom, Choice):
            return (atom,)
        if isinstance(atom, Made):
            fields = dict(atom.fields)
        elif isinstance(atom, Known) and dataclasses.is_dataclass(atom.value):
            names = [one.name for one in dataclasses.fields(atom.value)]
            fields = {name: self._follower.attributes.get(atom, name) for name in names}
        if fields is None:
            self._follower.uses.use((atom,))
            return self._follower.uses.use_all([], keywords)
        fields.update(keywords)
        if value is dataclasses.asdict:
            return (Table(dict(fields)),)
        cls = atom.cls if isinstance(atom, Made) else type(atom.value)  # type: ignore[union-attr]
        return (Made(cls, fields),)

    def _expand(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        first = args[0]
        environment = self._recorder.known(os.environ, "os.environ")
        found: list[Maybe] = []
        for text in constants(first) or ():
            for pair in re.findall(r"\$(\w+)|\$\{([^}]*)\}", str(text)):
                found.append(
                    self._follower.containers.item(environment, (Known(pair[0] or pair[1], ""),))
                )
        if constants(first) is None:
            self._recorder.say_opaque("os.path.expandvars", "which variables it looks up")
        return derived(first, *found)

    def _import(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        self._effects.count += 1
        self._follower.uses.use(args[0])
        names = constants(args[0])
        if names is None:
            self._recorder.say_opaque("import_module", "a module whose name is not known before")
            return ()
        return join(*(self._follower.modules.module(str(name)) for name in names))

    def _apply(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """Functions that are called with each element."""
        if len(args) < 2:
            return None
        function, inside = args[0], [self._follower.containers.elements(one) for one in args[1:]]
        count = join(
            *(self._follower.containers.count_of(atom) for one in args[1:] for atom in one)
        )
        if value is map:
            return (Items([self._follower.calls.call(function, inside, {})], count=count),)
        if value is filter:
            self._follower.uses.use(self._follower.calls.call(function, inside[:1], {}))
            return (Items(inside[:1], count=count),)
        each = self._follower.containers.each(args[1])
        if each is not None and len(each) <= _MOST_STEPS and len(args) == 3:
            self._follower.uses.use(count)
            found = args[2]
            for one in each:
                found = self._follower.calls.call(function, [found, one], {})
            return found
        start = join(inside[0], *args[2:3])
        once = self._follower.calls.call(function, [start, inside[0]], {})
        return join(start, self._follower.calls.call(function, [join(start, once), inside[0]], {}))

    def call_by_name(self, atom: Known, args: list[Maybe]) -> Maybe:
        """What an ``operator.methodcaller`` that exists gives."""
        caller = atom.value
        if atom.label:
            self._recorder.put(atom.label, caller)
        reduced: Any = caller.__reduce__()
        name, *given = reduced[1]
        if not isinstance(name, str):  # with keyword arguments it is a partial
            return self._follower.uses.use_all(args, {})
        found = join(*(self._follower.attributes.get(one, name) for one in args[0]))
        return self._follower.calls.call(
            found,
            [(self._recorder.known(one, f"methodcaller.{name}"),) for one in given],
            {},
        )

    def _hand_on(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        first = args[0] if args else ()
        if value is vars:
            return join(*(self._follower.attributes.get(one, "__dict__") for one in first))
        if keywords:
            table = Table({}, kind=value if isinstance(value, type) else dict)
            self._follower.containers.merge(table, first)
            table.items.update(keywords)
            return (table,)
        if value is dict:
            first = tuple(_of_pairs(one) or content_of(one) or one for one in first)
        # A copy, for what is added to it isn't in the other.
        return tuple(self._follower.containers.copied(one) for one in first)

    def make_dict(self, cls: type, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        """A library's subclass of dict: entries, which some have as attributes, too."""
        if issubclass(cls, collections.defaultdict):
            self._follower.uses.use_all(args[:1], {})
            args = args[1:]
        table = Table({}, kind=cls)
        for one in args:
            self._follower.containers.merge(table, one)
        table.items.update(keywords)
        return (table,)

    def _set(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        """``setattr``."""
        names = constants(args[1]) if len(args) == 3 else None
        if names is None or not all(isinstance(one, str) for one in names):
            return None
        self._follower.uses.use(tuple(one for one in args[1] if not is_constant(one)))
        for base in args[0] or (None,):
            for name in names:
                self._follower.attributes.set(base, name, args[2])
        return ()

    def _of_builtin_class(self, value: Any, args: list[Maybe]) -> Maybe | None:
        """``dict.update(self, ...)``, ``object.__setattr__(self, ...)``."""
        is_method = getattr(value, "__objclass__", None) in (dict, object)
        if not is_method or not args or not all(isinstance(one, Made) for one in args[0]):
            return None
        found = [
            self._follower.methods.call(LibraryMethod(o, value.__name__), args[1:], {})
            for o in args[0]
        ]
        return join(*found)

    def _get(self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe | None:
        if len(args) < 2:
            return None
        names = constants(args[1])
        if names is None or not all(isinstance(one, str) for one in names):
            if any(isinstance(one, Known | Made) for one in args[0]):
                self._recorder.say_opaque("getattr", "an attribute whose name is not known before")
            return self._follower.uses.use_all(args, {})
        found = join(
            *(self._follower.attributes.get(one, name) for one in args[0] for name in names)
        )
        # Which name it is counts once that makes a difference.
        which = tuple(one for one in args[1] if not is_constant(one))
        if value is hasattr:
            return truth(chosen(found, which))
        return chosen(join(found, *args[2:3]), which)


def _of_pairs(atom: Atom) -> Table | None:
    """The dict that a list of pairs becomes, where their keys are known."""
    table = Table({})
    for item in atom.items if isinstance(atom, Items) else [()]:
        pair = item[0] if len(item) == 1 else None
        keys = (
            constants(pair.items[0]) if isinstance(pair, Items) and len(pair.items) == 2 else None
        )
        if keys is None or len(keys) != 1 or not isinstance(pair, Items):
            return None
        table.items[keys[0]] = join(pair.items[1], derived(pair.items[0]))
    table.count = atom.count if isinstance(atom, Items) else ()
    return table


def _class_of(atom: Atom) -> type | None:
    if isinstance(atom, Known):
        return type(atom.value)
    if isinstance(atom, Table):
        return atom.kind
    return atom.cls if isinstance(atom, Made) and isinstance(atom.cls, type) else None


def _classes(maybe: Maybe) -> tuple[type, ...] | None:
    """What stands as the second argument of ``isinstance``; None if that isn't clear."""
    one = maybe[0] if len(maybe) == 1 else None
    if isinstance(one, Items):
        parts = [_classes(part) for part in one.items]
        return None if None in parts else tuple(kind for part in parts if part for kind in part)
    kinds = one.value if isinstance(one, Known) else None
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return kinds if all(isinstance(kind, type) for kind in kinds) else None


_HANDLED: dict[int, Callable[..., Maybe | None]] = {
    id(function): handle
    for handle, functions in (
        (BuiltinFunctions._open, (open,)),
        (BuiltinFunctions._types, (isinstance, issubclass, callable)),
        (BuiltinFunctions._type, (type,)),
        (BuiltinFunctions._hand_on, (copy.copy, copy.deepcopy, vars, dict, list, tuple, iter)),
        (BuiltinFunctions._zip, (zip,)),
        (BuiltinFunctions._getter, (operator.attrgetter, operator.itemgetter)),
        (BuiltinFunctions._fields, (dataclasses.fields,)),
        (BuiltinFunctions._replaced, (dataclasses.replace, dataclasses.asdict)),
        (BuiltinFunctions._get, (getattr, hasattr)),
        (BuiltinFunctions._item, (operator.getitem,)),
        (BuiltinFunctions._set, (setattr,)),
        (BuiltinFunctions._partial, (functools.partial,)),
        (BuiltinFunctions._getenv, (os.getenv,)),
        (BuiltinFunctions._expand, (os.path.expandvars,)),
        (BuiltinFunctions._import, (importlib.import_module, __import__)),
        (BuiltinFunctions._apply, (map, filter, functools.reduce)),
        (BuiltinFunctions._methodcaller, (operator.methodcaller,)),
        (BuiltinFunctions._reordered, (enumerate, reversed, sorted)),
    )
    for function in functions
}
