"""Statements: what they assign, and which of several blocks runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from feedline._identity import sources
from feedline._identity.files import Content
from feedline._identity.modules import imported_from
from feedline._identity.origin import is_user_class
from feedline._identity.part import Part
from feedline._identity.syntax import (
    assigned,
    captured,
    leaves,
    leaves_loop,
    name_of,
    raises_again,
    returns,
)
from feedline._identity.values import (
    MOST_ALTERNATIVES,
    Atom,
    Derived,
    Function,
    Items,
    Known,
    LocalClass,
    Made,
    Maybe,
    Scope,
    Table,
    arrays_of,
    choices,
    chosen,
    derived,
    is_constant,
    join,
    without_choices,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

_MOST_ROUNDS = 256


class Statements(Part):
    """Runs statements without running them: each kind has its method."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was raised yet."""
        super().__init__(follower)
        # What the errors are made of that are raised: whoever uses a caught one uses it.
        self._raised = Items([])
        # What decides whether they are raised: counts if somebody goes on after that.
        self._raise_tests = Items([])

    def run(self, node: sources.FunctionNode, scope: Scope) -> Maybe:
        """What a function may return."""
        if isinstance(node, ast.Lambda):
            return self._follower.expressions.value(node.body, scope)
        self.block(sources.without_docstring(node.body), scope)
        if scope.before_leaving is not None:
            # Whether it gets to its end decides what it returns, and whether the rest is done.
            self._follower.uses.use_deciding(scope.leaving, scope.before_leaving)
        return chosen(scope.returned, scope.leaving)

    def block(self, statements: list[ast.stmt], scope: Scope) -> None:
        self._follower.functions.nesting += 1
        for one in statements:
            method: Callable[[Any, Scope], None]
            method = getattr(self, f"on_{type(one).__name__}", self.use_children)
            method(one, scope)
        self._follower.functions.nesting -= 1

    def use_children(self, node: ast.AST, scope: Scope) -> None:
        """Whatever it is: what is in it is used."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._follower.uses.use(self._follower.expressions.value(child, scope))
            elif isinstance(child, ast.stmt):
                self.block([child], scope)
            else:
                self.use_children(child, scope)

    def on_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self._follower.expressions.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def on_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self._follower.expressions.value(node.value, scope), scope)

    def on_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self._follower.expressions.value(node.target, scope)
        added = self._follower.expressions.value(node.value, scope)
        made = [one for one in before if isinstance(one, Items)]
        for items in made:
            self._effects.mutations += 1
            self._follower.uses.add_item(items, self._follower.containers.elements(added))
        if not before:
            self._effects.count += 1
            self._follower.uses.use(added)  # for it may be changed in its place
        for one in arrays_of(before):
            self._follower.uses.add_source(one, added)
        if not made:
            # What exists already may be changed in its place.
            self._effects.count += not all(_is_plain(one) for one in without_choices(before))
            self.assign(node.target, derived(before, added), scope)

    def on_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self._follower.expressions.value(node.value, scope)

    def on_Raise(self, node: ast.Raise, scope: Scope) -> None:
        """Keep it for who catches it: what an error says changes nothing that is loaded."""
        parts = [node.cause, node.exc]
        if isinstance(node.exc, ast.Call):
            parts += [*node.exc.args, *(one.value for one in node.exc.keywords)]
            parts.remove(node.exc)
        for one in parts:
            if one is not None:
                self._follower.uses.add_item(
                    self._raised, self._follower.expressions.value(one, scope)
                )
        # Other errors mean something to Python and to libraries: the end of an iteration.
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        kinds = self._follower.expressions.value(kind, scope) if kind is not None else ()
        is_failure = kind is None or (kinds and all(map(_is_failure, kinds)))
        self._effects.raises += 1
        self._effects.count += not is_failure

    def on_Delete(self, node: ast.Delete, scope: Scope) -> None:
        """Nothing is read but which element goes."""
        for one in node.targets:
            if isinstance(one, ast.Subscript):
                self._effects.count += 1
                self._follower.uses.use(self._follower.expressions.value(one.slice, scope))

    def on_Return(self, node: ast.Return, scope: Scope) -> None:
        if node.value is not None:
            scope.returned = join(
                scope.returned, self._follower.expressions.value(node.value, scope)
            )

    def on_If(self, node: ast.If, scope: Scope) -> None:
        condition = self._follower.conditions.condition(node.test, scope)
        self._choose(condition.tests, condition.choose(node.body, node.orelse), scope)

    def _choose(self, tests: Maybe, blocks: list[list[ast.stmt]], scope: Scope) -> None:
        """One of several blocks runs; what decides which counts once that makes a difference.

        Blocks that only print, log, or make a folder for that make none. One that sets variables
        does where they are used.
        """
        before = self._effects.noticed()
        around, self._effects.tests = (
            self._effects.tests,
            join(self._effects.tests, tests),
        )
        self._branches(blocks, scope)
        self._effects.tests = around
        if any(map(returns, blocks)) and not any(map(leaves_loop, blocks)):
            scope.leaving = join(scope.leaving, tests)
            scope.before_leaving = scope.before_leaving or self._effects.noticed()
        elif any(map(leaves, blocks)):
            self._effects.count += 1
        if self._effects.count > before[0]:
            self._follower.uses.use(tests)
            self._effects.count += 1
            return
        if self._effects.outside > before[3]:
            self._follower.uses.use_beside(tests)
        if self._effects.raises > before[1]:
            self._follower.uses.add_item(self._raise_tests, tests)
        for name in {name for block in blocks for name in assigned(block)}:
            scope.variables[name] = chosen(scope.variables.get(name, ()), tests)

    def on_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        value = self._follower.expressions.value(node.iter, scope)
        each = self._follower.containers.each(value)
        inside = self._follower.containers.elements_of_some(value)
        # How many there are is a condition like any other.
        count = join(*map(self._follower.containers.count_of, value))
        if each is None or len(each) > _MOST_ROUNDS or not self._names_something(node, each):
            self.assign(node.target, inside, scope)
            # What one round sets, the next one may use.
            self._choose(count, [[*node.body, *node.body], []], scope)
        else:
            runs_whole = not count and not leaves(node.body)
            is_clear = all(_has_name(element, is_by_name=True) for element in each)
            for element in each if is_clear else [*each, *each]:
                self.assign(node.target, element, scope)
                if runs_whole:
                    self.block(node.body, scope)
                elif count:
                    self._choose(count, [node.body, []], scope)
                else:
                    self._branches([node.body, []], scope)
        self.block(node.orelse, scope)

    on_AsyncFor = on_For

    def _names_something(self, node: ast.For | ast.AsyncFor, each: list[Maybe]) -> bool:
        """Whether a loop goes over names: of options, of attributes."""
        by_name = {"getattr", "setattr", "hasattr"}
        is_by_name = any(name_of(one) in by_name for part in node.body for one in ast.walk(part))
        return any(_has_name(one, is_by_name=is_by_name) for one in each)

    def on_While(self, node: ast.While, scope: Scope) -> None:
        tests = self._follower.conditions.condition(node.test, scope).tests
        self._choose(tests, [[*node.body, *node.body], []], scope)
        self.block(node.orelse, scope)

    def on_With(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        for item in node.items:
            value = self._follower.expressions.value(item.context_expr, scope)
            self._use_suppressing(item.context_expr)
            is_file = bool(value) and all(map(_is_file, value))
            if any(map(_is_user_object, value)):
                self._effects.count += 1
                self._follower.uses.use(value)
            elif not is_file:
                self._effects.outside += 1
                self._follower.uses.use_beside(value)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value if is_file else derived(value), scope)
        self.block(node.body, scope)

    on_AsyncWith = on_With

    def on_Try(self, node: ast.Try, scope: Scope) -> None:
        self._branches([node.body, []], scope)
        for handler in node.handlers:
            if handler.name is not None:
                scope.variables[handler.name] = derived((self._raised,))
            if not raises_again(handler):
                self._follower.uses.use((self._raise_tests,))
        self._branches([*(handler.body for handler in node.handlers), []], scope)
        self.block([*node.orelse, *node.finalbody], scope)

    on_TryStar = on_Try

    def _use_suppressing(self, context: ast.expr) -> None:
        """``with contextlib.suppress(...)`` goes on after an error."""
        if any("suppress" in name for name in map(name_of, ast.walk(context))):
            self._follower.uses.use((self._raise_tests,))

    def on_Match(self, node: ast.Match, scope: Scope) -> None:
        subject = self._follower.expressions.value(node.subject, scope)
        tests = derived(subject)
        for case in node.cases:
            for name in captured(case.pattern):
                scope.variables[name] = derived(subject)
            if case.guard is not None:
                tests = join(tests, self._follower.conditions.condition(case.guard, scope).tests)
            for inside in ast.walk(case.pattern):
                if isinstance(inside, ast.expr):
                    tests = join(tests, self._follower.expressions.value(inside, scope))
        self._choose(tests, [*(case.body for case in node.cases), []], scope)

    def on_Assert(self, node: ast.Assert, scope: Scope) -> None:
        self._effects.raises += 1
        self._follower.uses.add_item(
            self._raise_tests, self._follower.conditions.condition(node.test, scope).tests
        )

    def on_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function: Maybe = (Function(node, scope),)
        for decorator in reversed(node.decorator_list):
            # A decorator may hand on what it is given, or not: both are followed.
            function = join(
                function,
                self._follower.calls.call(
                    self._follower.expressions.value(decorator, scope), [function], {}
                ),
            )
        scope.variables[node.name] = function

    on_AsyncFunctionDef = on_FunctionDef

    def on_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases: Maybe = join(*(self._follower.expressions.value(base, scope) for base in node.bases))
        inside = Scope({}, scope, scope.globals)
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        self.block([one for one in node.body if not isinstance(one, functions)], inside)
        scope.variables[node.name] = (LocalClass(node, scope, bases, inside.variables),)

    def on_Global(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        scope.declared_global.update(node.names)

    on_Nonlocal = on_Global

    def on_Import(self, node: ast.Import, scope: Scope) -> None:
        for one in node.names:
            name = one.name if one.asname else one.name.partition(".")[0]
            if one.name not in sys.modules:
                self._effects.count += 1
                self._follower.modules.use_unimported(one.name)
            scope.variables[one.asname or name] = self._follower.modules.module(name)

    def on_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        name = imported_from(node, str(scope.globals.get("__package__") or ""))
        module = self._follower.modules.module(name)
        for one in node.names:
            found = self._follower.modules.module(f"{name}.{one.name}", quietly=True)
            if module and not found:
                found = self._follower.attributes.get(module[0], one.name)
            if not found:
                self._follower.modules.use_unimported(f"{name}.{one.name}")
            scope.variables[one.asname or one.name] = found

    def _branches(self, blocks: list[list[ast.stmt]], scope: Scope) -> None:
        before, ends = scope.variables, []
        for one in blocks:
            scope.variables = dict(before)
            self.block(one, scope)
            ends.append(scope.variables)
        scope.variables = {
            name: join(*(end.get(name, ()) for end in ends))
            for name in dict.fromkeys(name for end in ends for name in end)
        }

    def assign(self, target: ast.expr, value: Maybe, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if target.id in scope.declared_global:
                self._effects.count += 1
                self._follower.uses.use(value)  # others may read it there
            if len(without_choices(value)) > MOST_ALTERNATIVES:
                value = derived(value)
            scope.variables[target.id] = value
        elif isinstance(target, ast.Attribute):
            for base in self._follower.expressions.value(target.value, scope) or (None,):
                self._follower.attributes.set(base, target.attr, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Subscript):
            key = self._follower.expressions.value(target.slice, scope)
            for base in self._follower.expressions.value(target.value, scope) or (None,):
                self._follower.containers.set_item(base, key, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, scope)

    def _unpack(self, targets: list[ast.expr], value: Maybe, scope: Scope) -> None:
        stars = [at for at, one in enumerate(targets) if isinstance(one, ast.Starred)]
        several = without_choices(value)
        star = stars[0] if stars else None
        parts = [self._follower.containers.parts(one, len(targets), star) for one in several]
        if parts and all(one is not None for one in parts):
            decided = choices(value)
            for number, target in enumerate(targets):
                self.assign(target, join(*(one[number] for one in parts if one), decided), scope)
            return
        inside = self._follower.containers.elements(value)
        for target in targets:
            self.assign(target, inside, scope)


def _has_name(element: Maybe, *, is_by_name: bool) -> bool:
    """Whether an element is a text, or begins with one, that may name something.

    That is a text of the source, and any other one for code that looks something up by its name.
    """
    several = without_choices(element)
    first = several[0] if len(several) == 1 else None
    if isinstance(first, Items) and first.items:
        return _has_name(first.items[0], is_by_name=is_by_name)
    if isinstance(first, Table) and "name" in first.items:
        return _has_name(first.items["name"], is_by_name=is_by_name)
    if not isinstance(first, Known | Derived) or not isinstance(first.value, str):
        return False
    return is_by_name or isinstance(first, Derived) or is_constant(first)


def _is_file(atom: Atom) -> bool:
    """What ``open`` gives."""
    return isinstance(atom, Known) and (not atom.label or isinstance(atom.value, Content))


def _is_user_object(atom: Atom) -> bool:
    is_known = isinstance(atom, Known) and is_user_class(type(atom.value))
    return is_known or isinstance(atom, Made)


def _is_plain(atom: Atom) -> bool:
    """A text or a number, which can't be changed in its place."""
    is_value = isinstance(atom, Known) and isinstance(atom.value, str | bytes | int | float)
    return is_value or isinstance(atom, Derived)


# Errors that end the program, unless the user's own code catches them.
_FAILURES = (ValueError, RuntimeError, TypeError, AssertionError, SystemExit)
# Errors that mean something to Python and to libraries.
_MEANT = (StopIteration, StopAsyncIteration, LookupError, AttributeError, ImportError, OSError)


def _is_failure(atom: Atom) -> bool:
    kind = atom.value if isinstance(atom, Known) else None
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return False
    # Nobody else knows an error of the user's own, unless it is one of Python's as well.
    is_own = is_user_class(kind) and not issubclass(kind, _MEANT)
    return is_own or issubclass(kind, _FAILURES)
