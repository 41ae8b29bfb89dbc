"""Calls: into the user's own code with what it is given; what a library is given is used."""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import dataclasses
import functools
import inspect
import operator
import types
from typing import Any

from feedline._identity import sources
from feedline._identity.command_line import Parser, command_line
from feedline._identity.origin import is_user_class, is_user_function
from feedline._identity.standard import Standard, what_is_loaded
from feedline._identity.values import (
    Atom,
    Bound,
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
    derived,
    join,
    key_of,
    text_of,
)

# A longer chain of calls is followed from its middle on later, with all that is given to it in use.
_MOST_DEPTH = 15
_MOST_NESTING = 100
# A function that calls itself is followed so often; what it is given then is used.
_MOST_ROUNDS = 2
# More calls than this are not followed.
_MOST_CALLS = 20_000
# With so many different things that are made on the way a function is followed; then with all.
_MOST_CONTEXTS = 24

# What sees all variables of its caller.
_SEES_ALL = {"locals", "exec", "save_hyperparameters"}
_PARSES = {"parse_args", "parse_known_args"}


class Calls(Standard):
    """What a call reaches, and what it may return."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Nothing was called yet."""
        super().__init__(root_globals)
        self._returned: dict[Any, Maybe] = {}
        self._depth = 0
        self._nesting = 0
        # How often each function is being followed just now.
        self._rounds: collections.Counter[int] = collections.Counter()
        # By function: what it returned, each time that it was given something new.
        self._contexts: dict[Any, list[Maybe]] = {}

    def run(self, node: sources.FunctionNode, scope: Scope) -> Maybe:
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Maybe:
        raise NotImplementedError

    def call(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        if not callee:
            self.use_all(args, keywords)
        return join(*(self._call_one(one, args, keywords) for one in callee))

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
            if all(isinstance(one, LibraryMethod) for one in callee):
                line: Maybe = (command_line(_parser(callee)),)
                self._alive += line
                return line if name == "parse_args" else (Items([line, line]),)
        if name == "globals" and not args:
            return (self.known(scope.globals, "globals()"),)
        if name == "eval" and args:
            return self._evaluate(args, scope)
        if name in _SEES_ALL or (name == "vars" and not args):
            for one in scope.variables.values():
                self.use(one)
            if name == "exec":
                self.say_opaque("exec", "code that is made when it runs")
        return None

    def _evaluate(self, args: list[Maybe], scope: Scope) -> Maybe:
        """``eval(text)``."""
        self.use_all(args, {})
        text = text_of(args[0])
        try:
            if text is not None and len(args) == 1:
                return self.value(ast.parse(text.strip(), mode="eval").body, scope)
        except (SyntaxError, ValueError):
            pass
        for one in scope.variables.values():
            self.use(one)
        self.say_opaque("eval", "code that is made when it runs")
        return ()

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
            return self.call_library_method(atom, args, keywords)
        if isinstance(atom, Made):
            method = self._user_method(atom, "__call__")
            if method:
                return self.call(method, args, keywords)
        self.use((atom,))
        return self.use_all(args, keywords)

    # Objects that exist.

    def _call_known(self, atom: Known, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        value, label = atom.value, atom.label
        special = self.call_standard(value, args, keywords)
        if special is not None:
            return special
        if isinstance(value, types.FunctionType):
            return self._call_function(value, args, keywords)
        if isinstance(value, type):
            return self._call_class(value, label, args, keywords)
        if isinstance(value, types.MethodType):
            receiver = self.known(value.__self__, self._label_of_self(value.__self__))
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
        if isinstance(value, operator.methodcaller) and args:
            return self.call_by_name(value, args)
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and not isinstance(value, types.ModuleType):
            # functools.cache, and what decorates without changing
            return self.call((self.known(wrapped, label),), args, keywords)
        method = self._user_method(atom, "__call__")
        if method:
            return self.call(method, args, keywords)
        self.use((atom,))
        return self.use_all(args, keywords)

    def _call_class(
        self, cls: type, label: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if is_user_class(cls):
            made = self.construct(cls, args, keywords)
            instead = inspect.getattr_static(type(cls), "__call__", None)
            if isinstance(instead, types.FunctionType) and is_user_function(instead):
                given: list[Maybe] = [(self.known(cls, label),), *args]
                made = join(made, self._call_function(instead, given, keywords))
            return made
        self.note_package(cls.__module__)
        if cls is argparse.Namespace:
            return (Table(dict(keywords)),)
        if cls is argparse.ArgumentParser:
            parser = Parser(is_clear=not {"parents", "prefix_chars"} & keywords.keys())
            self._alive.append(parser)
            return (parser,)
        keywords = what_is_loaded(cls, keywords)
        self._note_given(cls, join(*args, *keywords.values()))
        return self.use_all(args, keywords)

    def _note_given(self, to: types.FunctionType | type, given: Maybe) -> None:
        """Remember whose fault it is that all of something counts."""
        for one in given:
            if isinstance(one, Known) and one.label:
                self._given_to.setdefault(one.label, f"{to.__module__}.{to.__qualname__}")

    # The user's functions.

    def _call_function(
        self, function: types.FunctionType, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if not is_user_function(function):
            self.note_package(function.__module__ or "")
            self._use_decorated(function)
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is None:
                return self._call_library(function, args, keywords)
            return self.call((self.known(wrapped, function.__qualname__),), args, keywords)
        code = function.__code__
        variables: dict[str, Maybe] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                inside = cell.cell_contents
                variables[name] = (self.known(inside, self.distinct(name, cell)),)
            except ValueError:  # it has no value yet
                variables[name] = ()
        label = self._label_of(function)
        owned = self.distinct(label, function)
        is_sent = function.__module__ == "__main__"
        node = sources.find(code, is_sent=is_sent)
        if node is None:
            self._use_code(function, owned, variables)
            return self.use_all(args, keywords)
        self.note_source(label, sources.shown(node, code.co_filename), sources.digest_of(node))
        for name, one in _defaults(function).items():
            variables[name] = (self.known(one, f"{owned}({name})"),)
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

    def _call_library(
        self, function: types.FunctionType, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        """A library's function: what it is given counts as a whole.

        But a function that is given all that was typed reads some of it: which, its source tells.
        """
        given = join(*args, *keywords.values())
        has_options = any(
            isinstance(one, Known) and isinstance(one.value, argparse.Namespace) for one in given
        )
        is_plain = has_options and function.__closure__ is None
        node = sources.find(function.__code__, is_sent=False) if is_plain else None
        if node is None:
            self._note_given(function, given)
            return self.use_all(args, keywords)
        defaults: dict[str, Maybe] = {
            name: (self.known(one, f"{function.__qualname__}({name})"),)
            for name, one in _defaults(function).items()
        }
        scope = Scope(defaults, None, function.__globals__)
        atom = self.known(function, "")
        return self._call_node(node, args, keywords, scope, function.__globals__, None, atom)

    def _label_of(self, function: types.FunctionType) -> str:
        name = function.__qualname__.replace("<locals>.", "")
        is_root = function.__module__ in ("__main__", None, self._root_name)
        return name if is_root else f"{function.__module__}.{name}"

    def _label_of_self(self, owner: Any) -> str:
        if isinstance(owner, type):
            return owner.__qualname__
        return self.distinct(type(owner).__qualname__, owner)

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
                self.use((self.known(one, self._label_of(one)),))

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
        if self._rounds[id(node)] >= _MOST_ROUNDS:
            return self.use_all(args, keywords)
        given = join(*args, *keywords.values())
        context = (key_of(atom), id(node))
        returned = self._contexts.setdefault(context, [])
        is_new = not all(isinstance(one, Known) for one in given)
        if is_new and len(returned) >= _MOST_CONTEXTS:
            for one in given:
                self.use(join(*one.fields.values()) if isinstance(one, Made) else ())
            self.use_all(args, keywords)
            return derived(*returned)
        if len(self._returned) >= _MOST_CALLS:
            self.say_opaque("make_loader", f"what follows after {_MOST_CALLS:,} calls")
            return self.use_all(args, keywords)
        if self._depth >= _MOST_DEPTH or self._nesting >= _MOST_NESTING:
            # Its result counts as a whole, since who called it goes on without.
            rounds = self._rounds.copy()

            def later() -> None:
                before, self._rounds = self._rounds, rounds
                try:
                    self.use(self._call_node(node, args, keywords, outer, globals_, owner, atom))
                finally:
                    self._rounds = before

            self._todo.append(later)
            self._alive.append(node)
            return ()
        # Until it has returned, a function that calls itself returns nothing that is known.
        self._returned[key] = ()
        self._alive += [atom, *args, *keywords.values()]
        receiver = args[0][0] if owner is not None and args and args[0] else None
        scope = Scope({}, outer, globals_, owner, receiver)
        self._bind(node, args, keywords, scope, outer)
        self._depth += 1
        self._rounds[id(node)] += 1
        try:
            self._returned[key] = self.run(node, scope)
        finally:
            self._depth -= 1
            self._rounds[id(node)] -= 1
        if is_new:
            returned.append(self._returned[key])
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
            self.use_all(more, {})
        if given.kwarg is not None:
            scope.variables[given.kwarg.arg] = (Table(dict(left)),)
        else:
            self.use_all([], left)

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
                self.use_all(args, keywords)
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
                self.use_all(args, what_is_loaded(cls, keywords))
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


def _parser(callee: Maybe) -> Parser | argparse.ArgumentParser | None:
    for one in callee:
        receiver = one.receiver if isinstance(one, LibraryMethod) else None
        if isinstance(receiver, Parser):
            return receiver
        if isinstance(receiver, Known) and isinstance(receiver.value, argparse.ArgumentParser):
            return receiver.value
    return None


__all__ = ["Calls"]
