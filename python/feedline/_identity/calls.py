"""Calls: into the user's own code with what it is given; what a library is given is used."""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import operator
import types

from feedline._identity.command_line import Parser, command_line
from feedline._identity.data_loaders import what_is_loaded
from feedline._identity.inert import is_inert_class, is_inert_function
from feedline._identity.origin import is_library_code, is_user_class, is_user_function
from feedline._identity.part import Part
from feedline._identity.values import (
    Atom,
    Bound,
    Function,
    Items,
    Known,
    LibraryMethod,
    LocalClass,
    Maybe,
    Parent,
    Partial,
    Scope,
    Table,
    array,
    choices,
    chosen,
    join,
    text_of,
    without_choices,
)

# What sees all variables of its caller.
_SEES_ALL = {"exec", "save_hyperparameters"}
_PARSES = {"parse_args", "parse_known_args"}


class Calls(Part):
    """What a call reaches, and what it may return."""

    def call(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        decided, callee = choices(callee), without_choices(callee)
        before = self._effects.noticed()
        unknown: Maybe = ()
        if not callee:
            self._effects.outside += 1
            unknown = self._follower.uses.give((), args, keywords)
        found = join(*(self.call_one(one, args, keywords) for one in callee), unknown, decided)
        self._follower.uses.use_deciding(decided, before)  # which code runs
        return found

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
        if name == "super" and len(args) == 2 and len(args[0]) == len(args[1]) == 1:
            owner = args[0][0]
            return (Parent(owner.value if isinstance(owner, Known) else owner, args[1][0]),)
        if name in _PARSES and isinstance(node.func, ast.Attribute) and not args and not keywords:
            if all(isinstance(one, LibraryMethod) for one in callee):
                line: Maybe = (command_line(_parser(callee)),)
                self._recorder.alive += line
                return line if name == "parse_args" else (Items([line, line]),)
        if name == "globals" and not args:
            return (self._recorder.known(scope.globals, "globals()"),)
        if name == "eval" and args:
            self._effects.count += 1
            return self._evaluate(args, scope)
        if name in ("locals", "vars") and not args:
            return (Table(dict(scope.variables)),)
        if name in _SEES_ALL:
            self._follower.uses.use_beside(*scope.variables.values())
            if name == "exec":
                self._effects.outside += 1
                self._recorder.say_opaque("exec", "code that is made when it runs")
        return None

    def _evaluate(self, args: list[Maybe], scope: Scope) -> Maybe:
        """``eval(text)``."""
        self._follower.uses.use_all(args, {})
        text = text_of(args[0])
        try:
            if text is not None and len(args) == 1:
                return self._follower.expressions.value(
                    ast.parse(text.strip(), mode="eval").body, scope
                )
        except (SyntaxError, ValueError):
            pass
        self._recorder.say_opaque("eval", "code that is made when it runs")
        return self._follower.uses.give((), list(scope.variables.values()), {})

    def call_one(self, atom: Atom, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        if isinstance(atom, Known):
            return self._call_known(atom, args, keywords)
        if isinstance(atom, Function):
            return self._follower.functions.call_node(
                atom.node, args, keywords, atom.scope, atom.scope.globals, atom.owner, atom
            )
        if isinstance(atom, Bound):
            return self.call_one(atom.function, [(atom.receiver,), *args], keywords)
        if isinstance(atom, Partial):
            return self.call(atom.function, [*atom.args, *args], {**atom.keywords, **keywords})
        if isinstance(atom, LocalClass):
            return self._follower.classes.construct(atom, args, keywords)
        if isinstance(atom, LibraryMethod):
            return self._follower.methods.call(atom, args, keywords)
        return self._call_object(atom, args, keywords)

    def _call_known(self, atom: Known, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        value, label = atom.value, atom.label
        self._follower.files.call_library(value, args)
        special = self._follower.builtins.call(value, args, keywords)
        if special is not None:
            # A name of the user's may stand for one of several of these.
            is_alias = label.rpartition(".")[2] not in ("", getattr(value, "__name__", ""))
            return chosen(special, (atom,)) if special and is_alias else special
        if is_inert_function(value, keywords):
            return array((atom,), *args, *keywords.values())
        if is_library_code(value):
            self._recorder.note_code(label, value)
        if isinstance(value, types.FunctionType):
            return self._follower.functions.call(value, args, keywords)
        if isinstance(value, type):
            return self._call_class(value, label, args, keywords)
        if isinstance(value, types.MethodType):
            receiver = self._recorder.known(
                value.__self__, self._recorder.label_of_object(value.__self__)
            )
            return self.call_one(
                Bound(self._recorder.known(value.__func__, label), receiver),
                args,
                keywords,
            )
        if isinstance(value, functools.partial):
            given = [
                (self._recorder.known(one, f"{label}.args[{at}]"),)
                for at, one in enumerate(value.args)
            ]
            named = {
                key: (self._recorder.known(one, f"{label}.{key}"),)
                for key, one in value.keywords.items()
            }
            return self.call(
                (self._recorder.known(value.func, label),),
                [*given, *args],
                {**named, **keywords},
            )
        if isinstance(value, operator.methodcaller) and args:
            return self._follower.builtins.call_by_name(atom, args)
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and not isinstance(value, types.ModuleType):
            # functools.cache, and what decorates without changing
            return self.call((self._recorder.known(wrapped, label),), args, keywords)
        return self._call_object(atom, args, keywords)

    def _call_object(self, atom: Atom, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        """By its ``__call__``, if that is the user's; of anything else, all counts."""
        method = self._follower.attributes.user_method(atom, "__call__")
        if method:
            return self.call(method, args, keywords)
        self._effects.outside += 1
        return self._follower.uses.give((atom,), args, keywords)

    def _call_class(
        self, cls: type, label: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if is_user_class(cls):
            self._recorder.note_bases(label, cls)
            made = self._follower.classes.construct(cls, args, keywords)
            instead = inspect.getattr_static(type(cls), "__call__", None)
            if isinstance(instead, types.FunctionType) and is_user_function(instead):
                given: list[Maybe] = [(self._recorder.known(cls, label),), *args]
                made = join(made, self._follower.functions.call(instead, given, keywords))
            return made
        self._recorder.note_package(cls.__module__)
        if cls is argparse.Namespace:
            return (Table(dict(keywords), kind=cls),)
        if issubclass(cls, dict):
            return self._follower.builtins.make_dict(cls, args, keywords)
        keywords = what_is_loaded(cls, keywords)
        self._recorder.note_given(cls, join(*args, *keywords.values()))
        if is_inert_class(cls):
            return array((self._recorder.known(cls, label),), *args, *keywords.values())
        self._effects.outside += 1
        if cls is argparse.ArgumentParser:
            parser = Parser(is_clear=not {"parents", "prefix_chars"} & keywords.keys())
            self._recorder.alive.append(parser)
            return (parser,)
        return self._follower.uses.give((self._recorder.known(cls, label),), args, keywords)


def _parser(callee: Maybe) -> Parser | argparse.ArgumentParser | None:
    for one in callee:
        receiver = one.receiver if isinstance(one, LibraryMethod) else None
        if isinstance(receiver, Parser):
            return receiver
        if isinstance(receiver, Known) and isinstance(receiver.value, argparse.ArgumentParser):
            return receiver.value
    return None
