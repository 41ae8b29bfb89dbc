"""Expressions: what each may stand for."""

from __future__ import annotations

import ast
import builtins
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from feedline._identity.part import Part
from feedline._identity.values import (
    UNKNOWN,
    Derived,
    Function,
    Items,
    Known,
    Maybe,
    Membership,
    Scope,
    Table,
    chosen,
    constants,
    derived,
    join,
    text_of,
    truth,
    without_choices,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

_MISSING = object()
# More expressions than this are not followed; a comprehension goes through so many rounds.
_MOST_STEPS = 300_000
_MOST_ROUNDS = 256


class Expressions(Part):
    """Finds what an expression may stand for: each kind has its method."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was followed yet."""
        super().__init__(follower)
        self._steps = 0

    def value(self, node: ast.expr, scope: Scope) -> Maybe:
        """What an expression may stand for; what it computes with is used."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self._recorder.say_opaque(
                "make_loader", f"what follows after {_MOST_STEPS:,} expressions"
            )
            return ()
        method: Callable[[Any, Scope], Maybe]
        method = getattr(self, f"of_{type(node).__name__}", self._of_other)
        self._follower.functions.nesting += 1
        try:
            return method(node, scope)
        finally:
            self._follower.functions.nesting -= 1

    def _of_other(self, node: ast.expr, scope: Scope) -> Maybe:
        self._follower.statements.use_children(node, scope)
        return ()

    def of_Constant(self, node: ast.Constant, scope: Scope) -> Maybe:
        return (Known(node.value, ""),)

    def of_Name(self, node: ast.Name, scope: Scope) -> Maybe:
        name = node.id
        within: Scope | None = scope
        while within is not None:
            if name in within.variables:
                return within.variables[name]
            within = within.outer
        found = scope.globals.get(name, _MISSING)
        if found is not _MISSING:
            self._follower.module_state.of_globals(scope.globals, name)
            return (self._recorder.known(found, self._recorder.global_label(name, scope.globals)),)
        found = getattr(builtins, name, _MISSING)
        return () if found is _MISSING else (self._recorder.known(found, name),)

    def of_Attribute(self, node: ast.Attribute, scope: Scope) -> Maybe:
        return join(
            *(
                self._follower.attributes.get(base, node.attr)
                for base in self.value(node.value, scope)
            )
        )

    def of_Subscript(self, node: ast.Subscript, scope: Scope) -> Maybe:
        key = self.value(node.slice, scope)
        found = [
            self._follower.containers.item(base, key) for base in self.value(node.value, scope)
        ]
        if not found:
            self._follower.uses.use(key)
        return join(*found)

    def of_Slice(self, node: ast.Slice, scope: Scope) -> Maybe:
        self._follower.statements.use_children(node, scope)
        return ()

    def of_Lambda(self, node: ast.Lambda, scope: Scope) -> Maybe:
        return (Function(node, scope),)

    def of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Maybe:
        items: list[Maybe] = []
        for one in node.elts:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, scope)
            items.append(
                self._follower.containers.elements(value) if isinstance(one, ast.Starred) else value
            )
        return (Items(items),)

    of_List = of_Set = of_Tuple

    def of_Dict(self, node: ast.Dict, scope: Scope) -> Maybe:
        table = Table({})
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self.value(value_node, scope)
            if key_node is None:
                self._follower.containers.merge(table, value)
                continue
            key = self.value(key_node, scope)
            self._follower.containers.put_item(table, key, value)
        return (table,)

    def of_IfExp(self, node: ast.IfExp, scope: Scope) -> Maybe:
        condition = self._follower.conditions.condition(node.test, scope)
        before = self._effects.noticed()
        wanted = condition.choose([node.body], [node.orelse])
        found = join(*(self.value(one, scope) for block in wanted for one in block))
        self._follower.uses.use_deciding(condition.tests, before)
        return chosen(found, condition.tests)

    def of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Maybe:
        found: list[Maybe] = []
        tests: Maybe = ()
        for one in node.values:
            before = self._effects.noticed()
            found.append(self.value(one, scope))
            self._follower.uses.use_deciding(
                tests, before
            )  # for they decide whether it gets so far
            if one is not node.values[-1]:
                tests = join(tests, truth(found[-1]))
        return chosen(join(*found), tests)

    def of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Maybe:
        if isinstance(node.op, ast.Not):
            return self._follower.conditions.condition(node, scope).tests
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return (Known(-number, ""),)
        return derived(self.value(node.operand, scope))

    def of_BinOp(self, node: ast.BinOp, scope: Scope) -> Maybe:
        sides = [self.value(node.left, scope), self.value(node.right, scope)]
        made = [one for side in sides for one in side if isinstance(one, Items | Table)]
        if made and isinstance(node.op, ast.Add | ast.Mult):
            return (Items([self._follower.containers.elements(side) for side in sides]),)
        if made and isinstance(node.op, ast.BitOr):
            table = Table({})
            for side in sides:
                self._follower.containers.merge(table, side)
            return (table,)
        path = self._joined_path(node, sides)
        if path is not None:
            return derived(*sides, value=path)
        left, right = map(text_of, sides)
        if isinstance(node.op, ast.Add) and left is not None and right is not None:
            return derived(*sides, value=left + right)
        return derived(*sides)

    def _joined_path(self, node: ast.BinOp, sides: list[Maybe]) -> pathlib.PurePath | None:
        """``folder / name``, if both are known."""
        plain = [one.value for side in sides for one in side if isinstance(one, Known | Derived)]
        match node.op, plain:
            case ast.Div(), [pathlib.PurePath() as folder, str() | pathlib.PurePath() as name]:
                return folder / name
        return None

    def of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Maybe:
        parts: list[Maybe] = []
        texts: list[str] = []
        for one in node.values:
            is_bare = True
            if isinstance(one, ast.FormattedValue):
                is_bare = one.conversion == -1 and one.format_spec is None
                if one.format_spec is not None:
                    parts.append(self.value(one.format_spec, scope))
                one = one.value
            parts.append(self._follower.builtins.as_text(self.value(one, scope)))
            plain = constants(parts[-1])
            if is_bare and plain and len(plain) == 1 and isinstance(plain[0], str | int):
                texts.append(str(plain[0]))
        is_whole = len(texts) == len(node.values)
        return derived(*parts, value="".join(texts) if is_whole else UNKNOWN)

    def of_Compare(self, node: ast.Compare, scope: Scope) -> Maybe:
        sides = [self.value(one, scope) for one in (node.left, *node.comparators)]
        if isinstance(node.ops[0], ast.In | ast.NotIn) and len(sides) == 2:
            return (Membership(sides[0], containers=sides[1]),)
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and len(sides) == 2:
            return truth(join(*sides))
        return derived(*sides)

    def of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Maybe:
        value = self.value(node.value, scope)
        self._follower.statements.assign(node.target, value, scope)
        return value

    def of_Starred(self, node: ast.Starred, scope: Scope) -> Maybe:
        return self._follower.containers.elements(self.value(node.value, scope))

    def of_Await(self, node: ast.Await, scope: Scope) -> Maybe:
        return self.value(node.value, scope)

    def of_Yield(self, node: ast.Yield, scope: Scope) -> Maybe:
        self._effects.count += 1
        if node.value is not None:
            self._follower.uses.use(self.value(node.value, scope))
        return ()

    def of_YieldFrom(self, node: ast.YieldFrom, scope: Scope) -> Maybe:
        self._effects.count += 1
        self._follower.uses.use(self.value(node.value, scope))
        return ()

    def of_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope
    ) -> Maybe:
        rounds, count = self._rounds_of(node.generators, scope, is_ordered=True)
        items = [chosen(self.value(node.elt, inside), tests) for inside, tests in rounds]
        return (Items(items, count=join(count, *(tests for _, tests in rounds))),)

    of_SetComp = of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp, scope: Scope) -> Maybe:
        table = Table({})
        rounds, count = self._rounds_of(node.generators, scope, is_ordered=False)
        self._follower.uses.add_rest(table, derived(count))
        for inside, tests in rounds:
            key = self.value(node.key, inside)
            self._follower.containers.put_item(
                table, key, chosen(self.value(node.value, inside), tests)
            )
            table.count = join(table.count, tests)
        return (table,)

    def _rounds_of(
        self, generators: list[ast.comprehension], scope: Scope, *, is_ordered: bool
    ) -> tuple[list[tuple[Scope, Maybe]], Maybe]:
        """The variables of each round of a comprehension, or of all together if it has many.

        Gives also what decides whether there is such a round, and how many there are.
        """
        none: Maybe = ()
        scopes = [(Scope({}, scope, scope.globals, scope.owner, scope.receiver), none)]
        count: Maybe = ()
        for one in generators:
            further: list[tuple[Scope, Maybe]] = []
            for outer, before in scopes:
                value = self.value(one.iter, outer)
                each = self._follower.containers.each(value)
                if each is None or len(each) * len(scopes) > _MOST_ROUNDS:
                    each = [derived(value) if each is None else join(*each)]
                count = join(count, *map(self._follower.containers.count_of, value))
                kept = []
                for number, element in enumerate(each):
                    inside = Scope({}, outer, scope.globals, scope.owner, scope.receiver)
                    self._follower.statements.assign(one.target, element, inside)
                    tests = [self._decide(condition, inside) for condition in one.ifs]
                    if None not in tests:
                        further.append((inside, join(before, *(test for test in tests if test))))
                        kept.append(number)
                order = value[0].order if len(value) == 1 and isinstance(value[0], Items) else None
                if order is not None and is_ordered:
                    self._recorder.put(f"order of {order[0]}", [order[1][at] for at in kept])
            scopes = further
        return scopes, count

    def _decide(self, node: ast.expr, scope: Scope) -> Maybe | None:
        """What decides whether a condition holds; None if it doesn't.

        That is clear if both of its sides are plain values.
        """
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq() as op]):
                given = self.value(node.left, scope)
                left = constants(given)
                right = self.value(node.comparators[0], scope)
                inside = self._plain_elements(right)
                if isinstance(op, ast.Eq | ast.NotEq):
                    inside = constants(right)
                    inside = None if inside is None or len(inside) > 1 else inside
                if left is not None and len(left) == 1 and inside is not None:
                    self._follower.uses.use(join(given, right))
                    is_true = (left[0] in inside) == isinstance(op, ast.In | ast.Eq)
                    return () if is_true else None
        condition = self._follower.conditions.condition(node, scope)
        return None if condition.holds is False else condition.tests

    def _plain_elements(self, maybe: Maybe) -> list[Any] | None:
        """The elements of a list of plain values."""
        atom = maybe[0] if len(maybe) == 1 else None
        if isinstance(atom, Known) and isinstance(atom.value, list | tuple | set | frozenset):
            return list(atom.value)
        if isinstance(atom, Table) and not (atom.rest or atom.count or atom.copied_from):
            return list(atom.items)
        if not isinstance(atom, Items):
            return None
        found = []
        for one in atom.items:
            plain = constants(one)
            if plain is None or len(plain) != 1:
                return None
            found += plain
        return found

    def of_Call(self, node: ast.Call, scope: Scope) -> Maybe:
        callee = self.value(node.func, scope)
        args: list[Maybe] = []
        keywords: dict[str, Maybe] = {}
        for one in node.args:
            if isinstance(one, ast.Starred):
                args += self._follower.containers.spread(self.value(one.value, scope))
            else:
                args.append(self.value(one, scope))
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is None:
                keywords.update(self._follower.containers.spread_keywords(value))
            else:
                keywords[keyword.arg] = value
        if not without_choices(callee) and isinstance(node.func, ast.Attribute):
            self._follower.files.call_named(node.func.attr, args)
        special = self._follower.calls.special(node, callee, args, keywords, scope)
        return self._follower.calls.call(callee, args, keywords) if special is None else special
