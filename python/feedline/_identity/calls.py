"""Calls: into the user's own code with what it is given; what a library is given is used."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import functools
import inspect
import logging
import os
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from feedline._identity import sources
from feedline._identity.digests import HOW_IT_LOADS
from feedline._identity.lookups import Lookups
from feedline._identity.origin import is_user_class, is_user_function
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
    Scope,
    Table,
    join,
    key_of,
)

# A chain of calls, or a number of them, that is longer isn't followed.
_MOST_DEPTH = 25
_MOST_CALLS = 5000

# What gives its argument back, or a copy of it.
_HANDS_ON = {
    id(one) for one in (copy.copy, copy.deepcopy, vars, dict, list, tuple, iter, dataclasses.asdict)
}
_HANDS_ON_BY_NAME = {"OmegaConf.to_container", "OmegaConf.create", "OmegaConf.to_object"}
# What depends on an argument's type only, or tells the user something.
_LOOKS = {
    id(one) for one in (print, isinstance, issubclass, type, callable, id, repr, warnings.warn)
}
_LOOKS |= {
    id(getattr(logging, name)) for name in ("debug", "info", "warning", "error", "critical", "log")
}
# What sees all variables of its caller.
_SEES_ALL = {"locals", "eval", "exec", "save_hyperparameters"}
_PARSES = {"parse_args", "parse_known_args"}


class Calls(Lookups):
    """What a call reaches, and what it may return."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Nothing was called yet."""
        super().__init__(root_globals)
        self._returned: dict[Any, Maybe] = {}
        self._depth = 0

    def run(self, node: sources.FunctionNode, scope: Scope) -> Maybe:
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Maybe:
        raise NotImplementedError

    def call(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        if not callee:
            self._use_all(args, keywords)
        return join(*(self._call_one(one, args, keywords) for one in callee))

    def _use_all(self, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        for one in (*args, *keywords.values()):
            self.use(one)
        return ()

    def special(
        self,
        node: ast.Call,
        callee: Maybe,
        args: list[Maybe],
        keywords: dict[str, Maybe],
        scope: Scope,
    ) -> Maybe | None:
        """Calls that mean something because of where they stand; None for all others."""
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name == "super" and not args and scope.owner is not None and scope.receiver is not None:
            return (Parent(scope.owner, scope.receiver),)
        if name in _PARSES and isinstance(node.func, ast.Attribute) and not args and not keywords:
            line: Maybe = (CommandLine(tuple(sys.argv[1:])),)
            is_user_defined = any(not isinstance(one, LibraryMethod) for one in callee)
            if not is_user_defined:
                return line if name == "parse_args" else (Items([line, line]),)
        if name in _SEES_ALL or (name == "vars" and not args):
            for one in scope.variables.values():
                self.use(one)
        return None

    def _call_one(self, atom: Atom, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        if isinstance(atom, Known):
            return self._call_known(atom, args, keywords)
        if isinstance(atom, Function):
            return self._call_node(
                atom.node, args, keywords, atom.scope, atom.scope.globals, atom.owner, atom
            )
        if isinstance(atom, Bound):
            return self._call_one(atom.function, [(atom.receiver,), *args], keywords)
        if isinstance(atom, Partial):
            return self.call(atom.function, [*atom.args, *args], {**atom.keywords, **keywords})
        if isinstance(atom, LocalClass):
            return self.construct(atom, args, keywords)
        if isinstance(atom, LibraryMethod):
            return self._call_library_method(atom, args, keywords)
        if isinstance(atom, Made):
            method = self._user_method(atom, "__call__")
            if method:
                return self.call(method, args, keywords)
        self.use((atom,))
        return self._use_all(args, keywords)

    # Objects that exist.

    def _call_known(self, atom: Known, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        value, label = atom.value, atom.label
        special = self._call_special(value, args, keywords)
        if special is not None:
            return special
        if isinstance(value, types.FunctionType):
            return self._call_function(value, args, keywords)
        if isinstance(value, type):
            return self._call_class(value, label, args, keywords)
        if isinstance(value, types.MethodType):
            receiver = self.known(value.__self__, _label_of_self(value, label))
            return self._call_one(
                Bound(self.known(value.__func__, label), receiver), args, keywords
            )
        if isinstance(value, functools.partial):
            given = [(self.known(one, f"{label}.args[{at}]"),) for at, one in enumerate(value.args)]
            named = {
                key: (self.known(one, f"{label}.{key}"),) for key, one in value.keywords.items()
            }
            return self.call(
                (self.known(value.func, label),), [*given, *args], {**named, **keywords}
            )
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and not isinstance(value, types.ModuleType):
            # functools.cache, and what decorates without changing
            return self.call((self.known(wrapped, label),), args, keywords)
        method = self._user_method(atom, "__call__")
        if method:
            return self.call(method, args, keywords)
        self.use((atom,))
        return self._use_all(args, keywords)

    def _call_special(
        self, value: Any, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe | None:
        """Functions of Python's own that look at less than all of what they are given."""
        first = args[0] if args else ()
        if id(value) in _LOOKS:
            return ()
        if getattr(value, "__qualname__", "") in _HANDS_ON_BY_NAME and first:
            return first
        if id(value) in _HANDS_ON or (value is types.SimpleNamespace and keywords):
            return self._hand_on(value, first, keywords)
        if value in (getattr, hasattr) and len(args) > 1:
            return self._get(value, args)
        if value is functools.partial and first:
            return (Partial(first, args[1:], keywords),)
        if value is os.getenv and first:
            found = self.item(self.known(os.environ, "os.environ"), first)
            return join(found, *args[1:2])
        return None

    def _hand_on(self, value: Any, first: Maybe, keywords: dict[str, Maybe]) -> Maybe:
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
        return first

    def _get(self, value: Callable[..., Any], args: list[Maybe]) -> Maybe:
        names = [
            one.value for one in args[1] if isinstance(one, Known) and isinstance(one.value, str)
        ]
        if len(names) != len(args[1]) or not names:
            return self._use_all(args, {})
        self.use(args[1])
        found = join(*(self.attribute(one, names[0]) for one in args[0]))
        if value is hasattr:
            self.use_truth(found)
            return ()
        return join(found, *args[2:3])

    def _call_class(
        self, cls: type, label: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if is_user_class(cls):
            return self.construct(cls, args, keywords)
        self.note_package(cls.__module__)
        data = sys.modules.get("torch.utils.data")
        if data is not None and issubclass(cls, data.DataLoader):
            keywords = {key: one for key, one in keywords.items() if key not in HOW_IT_LOADS}
        if cls.__module__ == "argparse" and cls.__name__ == "Namespace":
            return (Table(dict(keywords)),)
        return self._use_all(args, keywords)

    def _call_library_method(
        self, atom: LibraryMethod, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        receiver, name = atom.receiver, atom.name
        if isinstance(receiver, Known) and isinstance(receiver.value, logging.Logger):
            return ()
        is_mapping = isinstance(receiver, Table) or (
            isinstance(receiver, Known)
            and (isinstance(receiver.value, Mapping) or hasattr(receiver.value, "keys"))
        )
        if is_mapping and name in ("get", "pop", "setdefault") and args:
            return join(self.item(receiver, args[0]), *args[1:2])
        if is_mapping and name == "copy":
            return (receiver,)
        if isinstance(receiver, Table) and name == "update":
            for one in args:
                self.merge(receiver, one)
            receiver.items.update(keywords)
            return ()
        if isinstance(receiver, Items):
            if name in ("append", "add", "insert", "extend", "update"):
                for one in args:
                    receiver.items.append(
                        self.elements(one) if name in ("extend", "update") else one
                    )
                return ()
            return join(*receiver.items) if name == "pop" else ()
        if isinstance(receiver, Table) and name in ("items", "values"):
            inside = join(receiver.rest, *receiver.items.values())
            return (Items([inside if name == "values" else (Items([(), inside]),)]),)
        if isinstance(receiver, Table) and name == "keys":
            return ()
        # What a base class is told when an object is made says nothing of the object's methods.
        if not (isinstance(receiver, Parent) and name in ("__init__", "__new__")):
            self.use((receiver,))
        return self._use_all(args, keywords)

    # The user's functions.

    def _call_function(
        self, function: types.FunctionType, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if not is_user_function(function):
            self.note_package(function.__module__ or "")
            self._use_decorated(function)
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is None:
                return self._use_all(args, keywords)
            return self.call((self.known(wrapped, function.__qualname__),), args, keywords)
        code = function.__code__
        variables: dict[str, Maybe] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                variables[name] = (self.known(cell.cell_contents, name),)
            except ValueError:  # it has no value yet
                variables[name] = ()
        label = _label_of(function)
        is_sent = function.__module__ == "__main__"
        node = sources.find(code, is_sent=is_sent)
        if node is None:
            self._use_code(function, label, variables)
            return self._use_all(args, keywords)
        self.note_source(label, sources.shown(node, code.co_filename), sources.digest_of(node))
        for name, one in _defaults(function).items():
            variables[name] = (self.known(one, f"{label}({name})"),)
        cell_of_class = variables.get("__class__", ())
        owner = (
            cell_of_class[0].value
            if cell_of_class and isinstance(cell_of_class[0], Known)
            else None
        )
        scope = Scope(variables, None, function.__globals__)
        return self._call_node(
            node, args, keywords, scope, function.__globals__, owner, self.known(function, "")
        )

    def _use_decorated(self, function: types.FunctionType) -> None:
        """What a library's decorator has made of the user's functions still calls them."""
        inside = list(dict(getattr(function, "registry", {})).values())
        for cell in function.__closure__ or ():
            try:
                inside.append(cell.cell_contents)
            except ValueError:  # it has no value yet
                continue
        for one in inside:
            if isinstance(one, types.FunctionType) and is_user_function(one):
                self.use((self.known(one, _label_of(one)),))

    def _use_code(
        self, function: types.FunctionType, label: str, variables: dict[str, Maybe]
    ) -> None:
        """A function without source: what it does, and all that it refers to."""
        self.note_source(
            label, "(its source is not known)", sources.digest_of_code(function.__code__)
        )
        for name, one in _defaults(function).items():
            self.use((self.known(one, f"{label}({name})"),))
        for root, chain in sources.chains(function.__code__):
            found: Maybe = variables.get(root, ())
            if root in function.__globals__:
                found = (
                    self.known(
                        function.__globals__[root], self.global_label(root, function.__globals__)
                    ),
                )
            elif not found and not hasattr(builtins, root):
                continue
            for name in chain:
                further = join(*(self.attribute(one, name) for one in found))
                found = further or found
            self.use(found)

    def _call_node(
        self,
        node: sources.FunctionNode,
        args: list[Maybe],
        keywords: dict[str, Maybe],
        outer: Scope,
        globals_: dict[str, Any],
        owner: Any,
        atom: Atom,
    ) -> Maybe:
        key = (
            *(key_of(atom), id(node)),
            tuple(tuple(map(key_of, one)) for one in args),
            tuple((name, tuple(map(key_of, one))) for name, one in sorted(keywords.items())),
        )
        if key in self._returned:
            return self._returned[key]
        if self._depth >= _MOST_DEPTH or len(self._returned) >= _MOST_CALLS:
            return self._use_all(args, keywords)
        # Until it has returned, a function that calls itself returns nothing that is known.
        self._returned[key] = ()
        self._alive += [atom, *args, *keywords.values()]
        receiver = args[0][0] if owner is not None and args and args[0] else None
        scope = Scope({}, outer, globals_, owner, receiver)
        self._bind(node, args, keywords, scope, outer)
        self._depth += 1
        try:
            self._returned[key] = self.run(node, scope)
        finally:
            self._depth -= 1
        return self._returned[key]

    def _bind(
        self,
        node: sources.FunctionNode,
        args: list[Maybe],
        keywords: dict[str, Maybe],
        scope: Scope,
        outer: Scope,
    ) -> None:
        given = node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)]
        left = dict(keywords)
        bound = dict(zip(names, args, strict=False))
        for name in (*names, *(one.arg for one in given.kwonlyargs)):
            if name in left and name not in bound:
                bound[name] = left.pop(name)
        defaults: dict[str, ast.expr] = dict(
            zip(reversed(names), reversed(given.defaults), strict=False)
        )
        defaults.update(
            {
                one.arg: value
                for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
                if value
            }
        )
        for name in (*names, *(one.arg for one in given.kwonlyargs)):
            if name not in bound:
                # A function that exists has its defaults' values already.
                is_there = outer.outer is None and name in outer.variables
                by_source = (
                    self.value(defaults[name], outer) if name in defaults and not is_there else ()
                )
                bound[name] = outer.variables[name] if is_there and name in defaults else by_source
        scope.variables.update(bound)
        more = args[len(names) :]
        if given.vararg is not None:
            scope.variables[given.vararg.arg] = (Items(more),)
        else:
            self._use_all(more, {})
        if given.kwarg is not None:
            scope.variables[given.kwarg.arg] = (Table(dict(left)),)
        else:
            self._use_all([], left)

    # The user's classes.

    def construct(
        self, cls: type | LocalClass, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        made = Made(cls)
        self._alive.append(made)
        if isinstance(cls, LocalClass):
            self.use(cls.bases)
            init = cls.functions.get("__init__")
            if init is not None:
                self._call_one(Bound(init, made), args, keywords)
            else:
                self._use_all(args, keywords)
            return (made,)
        for base in cls.__mro__:
            if not is_user_class(base):
                self.note_package(base.__module__)
        if _is_record(cls):
            self._fill(made, cls, args, keywords)
            return (made,)
        for name in ("__new__", "__init__"):
            found = inspect.getattr_static(cls, name, None)
            function = getattr(found, "__func__", found)
            if isinstance(function, types.FunctionType) and is_user_function(function):
                self._call_function(function, [(made,), *args], keywords)
            elif name == "__init__" or not isinstance(found, types.BuiltinFunctionType):
                self._use_all(args, keywords)
        return (made,)

    def _fill(self, made: Made, cls: type, args: list[Maybe], keywords: dict[str, Maybe]) -> None:
        """A dataclass or a named tuple: arguments are fields."""
        if dataclasses.is_dataclass(cls):
            names = [one.name for one in dataclasses.fields(cls) if one.init]
            for one in dataclasses.fields(cls):
                if one.default is not dataclasses.MISSING:
                    made.fields[one.name] = (
                        self.known(one.default, f"{cls.__qualname__}.{one.name}"),
                    )
                elif one.default_factory is not dataclasses.MISSING:
                    factory = self.known(one.default_factory, f"{cls.__qualname__}.{one.name}")
                    made.fields[one.name] = self._call_one(factory, [], {})
        else:
            names = list(cls._fields)  # type: ignore[attr-defined]
        made.fields.update(zip(names, args, strict=False))
        made.fields.update(keywords)
        after = inspect.getattr_static(cls, "__post_init__", None)
        if isinstance(after, types.FunctionType):
            self._call_function(after, [(made,)], {})


def _is_record(cls: type) -> bool:
    """Whether its ``__init__`` was generated from its fields."""
    if dataclasses.is_dataclass(cls):
        init = inspect.getattr_static(cls, "__init__", None)
        return isinstance(init, types.FunctionType) and init.__code__.co_filename == "<string>"
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    found = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    return {**found, **(function.__kwdefaults__ or {})}


def _label_of(function: types.FunctionType) -> str:
    name = function.__qualname__.replace("<locals>.", "")
    return name if function.__module__ in ("__main__", None) else f"{function.__module__}.{name}"


def _label_of_self(method: types.MethodType, label: str) -> str:
    owner = method.__self__
    return owner.__qualname__ if isinstance(owner, type) else type(owner).__qualname__


__all__ = ["Calls"]
