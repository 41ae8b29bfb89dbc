"""Conditions: what decides them counts once that makes a difference."""

from __future__ import annotations

import argparse
import ast
import enum
import types
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from feedline._identity.origin import is_user_class
from feedline._identity.part import Part
from feedline._identity.values import (
    Atom,
    Choice,
    Derived,
    Function,
    Items,
    Known,
    Made,
    Maybe,
    Membership,
    Scope,
    Table,
    Truth,
    TypeOf,
    choices,
    content_of,
    join,
    truth,
    without_choices,
)

_Node = TypeVar("_Node", bound=ast.AST)


class Condition(NamedTuple):
    """Whether something is true, where that is known before, and what decides it."""

    tests: Maybe
    holds: bool | None

    def choose(self, then: list[_Node], otherwise: list[_Node]) -> list[list[_Node]]:
        """Which of two blocks may run."""
        if self.holds is None:
            return [then, otherwise]
        return [then, []] if self.holds else [[], otherwise]


class Conditions(Part):
    """What decides whether something is true, and which part of it that looks at."""

    def condition(self, node: ast.expr, scope: Scope) -> Condition:
        """Whether an expression is true, as far as that is known, and what decides it."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                inner = self.condition(node.operand, scope)
                return Condition(inner.tests, None if inner.holds is None else not inner.holds)
            case ast.BoolOp():
                return self._all_conditions(node, scope)
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
                value = self._follower.expressions.value(node.left, scope)
                is_local = isinstance(node.left, ast.Name) and node.left.id in scope.variables
                is_there = len(value) == 1 and _is_there(value[0], is_local=is_local)
                tests = () if is_there else truth(value)
                return Condition(tests, isinstance(op, ast.IsNot) if is_there else None)
        value = self._follower.expressions.value(node, scope)
        one = value[0] if len(value) == 1 else None
        if isinstance(one, TypeOf) and isinstance(one.value, bool):
            return Condition(value, one.value)
        if isinstance(one, Table) and not (one.items or one.rest or one.copied_from or one.is_used):
            # A dict that is being made, to which nothing was added yet.
            return Condition((), False)
        return Condition(truth(value), None)

    def _all_conditions(self, node: ast.BoolOp, scope: Scope) -> Condition:
        """``a and b``, ``a or b``."""
        tests: Maybe = ()
        ends_it = isinstance(node.op, ast.Or)
        holds: bool | None = not ends_it
        for one in node.values:
            before = self._effects.noticed()
            further = self.condition(one, scope)
            self._follower.uses.use_deciding(
                tests, before
            )  # for they decide whether it gets so far
            tests = join(tests, further.tests)
            if further.holds is ends_it:
                return Condition(tests, ends_it)
            holds = holds if further.holds is not None else None
        return Condition(tests, holds)

    def test(self, node: ast.expr, scope: Scope) -> None:
        """An expression of which the truth counts."""
        self._follower.uses.use(self.condition(node, scope).tests)

    def tested(self, atom: Truth | TypeOf | Membership) -> Maybe:
        if isinstance(atom, Truth):
            return self._tested_truth(atom.sources)
        if isinstance(atom, TypeOf):
            return self._tested_types(atom.sources)
        return self._tested_membership(atom.sources, atom.containers)

    def _tested_truth(self, maybe: Maybe) -> Maybe:
        """Only whether it is true, or there at all."""
        for atom in maybe:
            if isinstance(atom, Known | Made):
                self._use_truth_of_user_object(atom)
            if not isinstance(atom, Known) or not atom.label:
                continue
            value = atom.value
            if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum):
                self._follower.uses.record(value, atom.label)
            elif isinstance(value, list | tuple | dict | set):
                self._recorder.put(f"bool({atom.label})", bool(value))
                self._follower.additions.use(value)
        found = [part for atom in maybe for part in self._tested_emptiness(content_of(atom))]
        return (*_computed(maybe), *found)

    def _tested_emptiness(self, atom: Atom | None) -> Maybe:
        """What decides whether a list or a dict that is made has anything in it."""
        if not isinstance(atom, Items | Table):
            return ()
        if atom.order is not None:
            self._recorder.put(f"bool({atom.order[0]})", bool(atom.order[1]))
        return join(*map(choices, atom.parts()), atom.count, getattr(atom, "rest", ()))

    def _use_truth_of_user_object(self, atom: Known | Made) -> None:
        cls = type(atom.value) if isinstance(atom, Known) else atom.cls
        if isinstance(cls, type) and is_user_class(cls):
            for name in ("__bool__", "__len__"):
                if isinstance(getattr(cls, name, None), types.FunctionType):
                    self._follower.uses.use(
                        self._follower.calls.call(self._follower.attributes.get(atom, name), [], {})
                    )
                    return

    def _tested_types(self, maybe: Maybe) -> Maybe:
        for atom in maybe:
            if isinstance(atom, Known) and atom.label:
                self._recorder.put(f"type({atom.label})", type(atom.value).__qualname__)
        return _computed(maybe)

    def _tested_membership(self, keys: Maybe, containers: Maybe) -> Maybe:
        """``key in container``."""
        found: list[Atom] = []
        for one in containers:
            method = self._follower.attributes.user_method(one, "__contains__")
            container = one if method else content_of(one)
            is_known = isinstance(container, Known) and isinstance(
                container.value, Mapping | argparse.Namespace
            )
            named = without_choices(keys)
            plain = [key.value for key in named if isinstance(key, Known | Derived)]
            plain = [key for key in plain if isinstance(key, str)]
            if isinstance(container, Known) and is_known and len(plain) == len(named) == 1:
                self._recorder.put(
                    f"{plain[0]!r} in {container.label}", plain[0] in container.value
                )
                found += self._follower.additions.of_key(container, plain[0])
            elif isinstance(container, Table) and len(plain) == len(named) == 1:
                found += [*choices(container.items.get(plain[0], ())), *container.rest]
                if container.order is not None:
                    label, names = container.order
                    self._recorder.put(f"{plain[0]!r} in {label}", plain[0] in names)
            else:
                found.append(one)
        return (*found, *keys)


def _is_there(atom: Atom, *, is_local: bool) -> bool:
    """Whether something can't be None.

    A field or a global may be filled when the loader's own code runs, in one job and not yet in
    the other: then what fills it must be followed in both.
    """
    if isinstance(atom, Known):
        return is_local and isinstance(atom.value, dict)
    return isinstance(atom, Made | Table | Items | Function)


def _computed(maybe: Maybe) -> Maybe:
    return tuple(one for one in maybe if isinstance(one, Derived | Choice))
