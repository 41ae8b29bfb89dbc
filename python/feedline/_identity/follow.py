"""Following the user's code to what it really reaches.

The code of ``make_loader`` isn't run but read, with the objects at hand that it refers to. A path
such as ``args.size`` is followed for as long as it is clear where it leads: through locals, into
the user's own functions, into the fields of the user's own objects. Where a value decides something
or is handed to a library, it is *used*: from there on all of it counts. What is computed from it
is ``Derived``, and uses it once it is used itself.

================  ==========================================================
``values``        what an expression may stand for
``follow``        statements and expressions: this module
``calls``         what happens when something is called
``standard``      the same for Python's own functions
``command_line``  what a parser gives that the loader calls itself
``lookups``       attributes and items of what is known
``reached``       what was used: by its label, with a digest
``entries``       what came of it, and how two of them differ
================  ==========================================================
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import sys
from collections.abc import Callable
from typing import Any

from feedline._identity import sources
from feedline._identity.calls import Calls
from feedline._identity.standard import tells
from feedline._identity.values import (
    MOST_ALTERNATIVES,
    UNKNOWN,
    Function,
    Items,
    Known,
    LocalClass,
    Maybe,
    Scope,
    Table,
    constants,
    derived,
    join,
    text_of,
)

_MISSING = object()
# More expressions than this are not followed; a comprehension goes through so many rounds.
_MOST_STEPS = 300_000
_MOST_ROUNDS = 256


class Follower(Calls):
    """Follows functions, one call at a time."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        """Nothing was followed yet."""
        super().__init__(root_globals)
        self._steps = 0
        # What the errors are made of that are raised: whoever uses a caught one uses it.
        self._raised = Items([])

    # Statements.

    def run(self, node: sources.FunctionNode, scope: Scope) -> Maybe:
        """What a function may return."""
        if isinstance(node, ast.Lambda):
            return self.value(node.body, scope)
        self.block(sources.without_docstring(node.body), scope)
        return scope.returned

    def block(self, statements: list[ast.stmt], scope: Scope) -> None:
        self._nesting += 1
        for one in statements:
            method: Callable[[Any, Scope], None]
            method = getattr(self, f"on_{type(one).__name__}", self._each_child)
            method(one, scope)
        self._nesting -= 1

    def _each_child(self, node: ast.AST, scope: Scope) -> None:
        """Whatever it is: what is in it is used."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.use(self.value(child, scope))
            elif isinstance(child, ast.stmt):
                self.block([child], scope)
            else:
                self._each_child(child, scope)

    def on_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def on_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, scope), scope)

    def on_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.value(node.target, scope)
        added = self.value(node.value, scope)
        made = [one for one in before if isinstance(one, Items)]
        for items in made:
            self.add_item(items, self.elements(added))
        if not made:
            self.assign(node.target, derived(before, added), scope)

    def on_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self.value(node.value, scope)

    def on_Raise(self, node: ast.Raise, scope: Scope) -> None:
        """Keep it for who catches it: what an error says changes nothing that is loaded."""
        parts = [node.cause, node.exc]
        if isinstance(node.exc, ast.Call):
            parts += [*node.exc.args, *(one.value for one in node.exc.keywords)]
            parts.remove(node.exc)
        for one in parts:
            if one is not None:
                self.add_item(self._raised, self.value(one, scope))

    def on_Delete(self, node: ast.Delete, scope: Scope) -> None:
        """Nothing is read but which element goes."""
        for one in node.targets:
            if isinstance(one, ast.Subscript):
                self.use(self.value(one.slice, scope))

    def on_Return(self, node: ast.Return, scope: Scope) -> None:
        if node.value is not None:
            scope.returned = join(scope.returned, self.value(node.value, scope))

    def on_If(self, node: ast.If, scope: Scope) -> None:
        if self._only_tells([*node.body, *node.orelse], scope):
            self.value(node.test, scope)
        else:
            self.test(node.test, scope)
        self._branches([node.body, node.orelse], scope)

    def _only_tells(self, statements: list[ast.stmt], scope: Scope) -> bool:
        """Whether statements do nothing but print, log, or make a folder for that."""
        for one in statements:
            if not isinstance(one, ast.Expr) or not isinstance(one.value, ast.Call):
                return False
            callee = self.value(one.value.func, scope)
            if not callee or not all(map(tells, callee)):
                return False
        return True

    def on_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        self.assign(node.target, self.elements(self.value(node.iter, scope)), scope)
        # What one round sets, the next one may use.
        self._branches([[*node.body, *node.body], []], scope)
        self.block(node.orelse, scope)

    on_AsyncFor = on_For

    def on_While(self, node: ast.While, scope: Scope) -> None:
        self.test(node.test, scope)
        self._branches([[*node.body, *node.body], []], scope)
        self.block(node.orelse, scope)

    def on_With(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        for item in node.items:
            value = self.value(item.context_expr, scope)
            self.use(value)
            if item.optional_vars is not None:
                is_sink = len(value) == 1 and isinstance(value[0], Known) and not value[0].label
                self.assign(item.optional_vars, value if is_sink else (), scope)
        self.block(node.body, scope)

    on_AsyncWith = on_With

    def on_Try(self, node: ast.Try, scope: Scope) -> None:
        self._branches([node.body, []], scope)
        for handler in node.handlers:
            if handler.name is not None:
                scope.variables[handler.name] = derived((self._raised,))
        self._branches([*(handler.body for handler in node.handlers), []], scope)
        self.block([*node.orelse, *node.finalbody], scope)

    on_TryStar = on_Try

    def on_Match(self, node: ast.Match, scope: Scope) -> None:
        self.use(self.value(node.subject, scope))
        self._branches([*(case.body for case in node.cases), []], scope)

    def on_Assert(self, node: ast.Assert, scope: Scope) -> None:
        self.test(node.test, scope)

    def on_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function: Maybe = (Function(node, scope),)
        for decorator in reversed(node.decorator_list):
            # A decorator may hand on what it is given, or not: both are followed.
            function = join(function, self.call(self.value(decorator, scope), [function], {}))
        scope.variables[node.name] = function

    on_AsyncFunctionDef = on_FunctionDef

    def on_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases: Maybe = join(*(self.value(base, scope) for base in node.bases))
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
                self.use_unimported(one.name)
            scope.variables[one.asname or name] = self.module(name)

    def on_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        name = node.module or ""
        if node.level:
            package = str(scope.globals.get("__package__") or "").split(".")
            package = package[: len(package) - node.level + 1]
            name = ".".join([*package, *([name] if name else [])])
        module = self.module(name)
        for one in node.names:
            found = self.module(f"{name}.{one.name}", quietly=True)
            if module and not found:
                found = self.attribute(module[0], one.name)
            scope.variables[one.asname or one.name] = found

    def module(self, name: str, *, quietly: bool = False) -> Maybe:
        if name in sys.modules:
            return (self.known(sys.modules[name], name),)
        if not quietly:
            self.use_unimported(name)
        return ()

    def use_unimported(self, name: str) -> None:
        """A module that the loader will import: all of its file."""
        parts = name.split(".")
        try:
            folders: Any = None
            for number, _ in enumerate(parts):
                spec = importlib.machinery.PathFinder.find_spec(
                    ".".join(parts[: number + 1]), folders
                )
                if spec is None:
                    return
                folders = spec.submodule_search_locations
                if spec.origin:
                    self.use_file(spec.name, spec.origin)
        except (ImportError, ValueError, OSError):
            return

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

    # Targets of an assignment.

    def assign(self, target: ast.expr, value: Maybe, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if target.id in scope.declared_global:
                self.use(value)  # others may read it there
            if len(value) > MOST_ALTERNATIVES:
                value = derived(value)
            scope.variables[target.id] = value
        elif isinstance(target, ast.Attribute):
            for base in self.value(target.value, scope) or (None,):
                self.set_attribute(base, target.attr, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Subscript):
            key = self.value(target.slice, scope)
            for base in self.value(target.value, scope) or (None,):
                self.set_item(base, key, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, scope)

    def _unpack(self, targets: list[ast.expr], value: Maybe, scope: Scope) -> None:
        is_plain = not any(isinstance(one, ast.Starred) for one in targets)
        parts = [self.parts(one, len(targets)) for one in value] if is_plain else []
        if parts and all(one is not None for one in parts):
            for number, target in enumerate(targets):
                self.assign(target, join(*(one[number] for one in parts if one)), scope)
            return
        inside = self.elements(value)
        for target in targets:
            self.assign(target, inside, scope)

    # Expressions.

    def value(self, node: ast.expr, scope: Scope) -> Maybe:
        """What an expression may stand for; what it computes with is used."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self.say_opaque("make_loader", f"what follows after {_MOST_STEPS:,} expressions")
            return ()
        method: Callable[[Any, Scope], Maybe]
        method = getattr(self, f"of_{type(node).__name__}", self._of_other)
        self._nesting += 1
        try:
            return method(node, scope)
        finally:
            self._nesting -= 1

    def _of_other(self, node: ast.expr, scope: Scope) -> Maybe:
        self._each_child(node, scope)
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
            return (self.known(found, self.global_label(name, scope.globals)),)
        found = getattr(builtins, name, _MISSING)
        return () if found is _MISSING else (self.known(found, name),)

    def of_Attribute(self, node: ast.Attribute, scope: Scope) -> Maybe:
        return join(*(self.attribute(base, node.attr) for base in self.value(node.value, scope)))

    def of_Subscript(self, node: ast.Subscript, scope: Scope) -> Maybe:
        key = self.value(node.slice, scope)
        found = [self.item(base, key) for base in self.value(node.value, scope)]
        if not found:
            self.use(key)
        return join(*found)

    def of_Slice(self, node: ast.Slice, scope: Scope) -> Maybe:
        self._each_child(node, scope)
        return ()

    def of_Lambda(self, node: ast.Lambda, scope: Scope) -> Maybe:
        return (Function(node, scope),)

    def of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Maybe:
        items: list[Maybe] = []
        for one in node.elts:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, scope)
            items.append(self.elements(value) if isinstance(one, ast.Starred) else value)
        return (Items(items),)

    of_List = of_Set = of_Tuple

    def of_Dict(self, node: ast.Dict, scope: Scope) -> Maybe:
        table = Table({})
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self.value(value_node, scope)
            if key_node is None:
                self.merge(table, value)
                continue
            key = self.value(key_node, scope)
            self.set_item(table, key, value)
        return (table,)

    def of_IfExp(self, node: ast.IfExp, scope: Scope) -> Maybe:
        self.test(node.test, scope)
        return join(self.value(node.body, scope), self.value(node.orelse, scope))

    def of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Maybe:
        for one in node.values[:-1]:
            self.test(one, scope)
        return join(*(self.value(one, scope) for one in node.values))

    def of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Maybe:
        return derived(self.value(node.operand, scope))

    def of_BinOp(self, node: ast.BinOp, scope: Scope) -> Maybe:
        sides = [self.value(node.left, scope), self.value(node.right, scope)]
        made = [one for side in sides for one in side if isinstance(one, Items | Table)]
        if made and isinstance(node.op, ast.Add | ast.Mult):
            return (Items([self.elements(side) for side in sides]),)
        if made and isinstance(node.op, ast.BitOr):
            table = Table({})
            for side in sides:
                self.merge(table, side)
            return (table,)
        left, right = map(text_of, sides)
        if isinstance(node.op, ast.Add) and left is not None and right is not None:
            return derived(*sides, value=left + right)
        return derived(*sides)

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
            parts.append(self.as_text(self.value(one, scope)))
            plain = constants(parts[-1])
            if is_bare and plain and len(plain) == 1 and isinstance(plain[0], str | int):
                texts.append(str(plain[0]))
        is_whole = len(texts) == len(node.values)
        return derived(*parts, value="".join(texts) if is_whole else UNKNOWN)

    def of_Compare(self, node: ast.Compare, scope: Scope) -> Maybe:
        sides = [self.value(one, scope) for one in (node.left, *node.comparators)]
        if isinstance(node.ops[0], ast.In | ast.NotIn) and len(sides) == 2:
            self.use_contains(sides[0], sides[1])
        elif isinstance(node.ops[0], ast.Is | ast.IsNot) and len(sides) == 2:
            for side in sides:
                self.use_truth(side)
        else:
            return derived(*sides)
        return ()

    def test(self, node: ast.expr, scope: Scope) -> None:
        """An expression of which only its truth counts."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                self.test(node.operand, scope)
            case ast.BoolOp():
                for one in node.values:
                    self.test(one, scope)
            case _:
                self.use_truth(self.value(node, scope))

    def of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Maybe:
        value = self.value(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def of_Starred(self, node: ast.Starred, scope: Scope) -> Maybe:
        return self.elements(self.value(node.value, scope))

    def of_Await(self, node: ast.Await, scope: Scope) -> Maybe:
        return self.value(node.value, scope)

    def of_Yield(self, node: ast.Yield, scope: Scope) -> Maybe:
        if node.value is not None:
            self.use(self.value(node.value, scope))
        return ()

    def of_YieldFrom(self, node: ast.YieldFrom, scope: Scope) -> Maybe:
        self.use(self.value(node.value, scope))
        return ()

    def of_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope
    ) -> Maybe:
        rounds, count = self._rounds_of(node.generators, scope, is_ordered=True)
        return (Items([self.value(node.elt, inside) for inside in rounds], count=count),)

    of_SetComp = of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp, scope: Scope) -> Maybe:
        table = Table({})
        rounds, count = self._rounds_of(node.generators, scope, is_ordered=False)
        self.add_rest(table, derived(count))
        for inside in rounds:
            key = self.value(node.key, inside)
            self.set_item(table, key, self.value(node.value, inside))
        return (table,)

    def _rounds_of(
        self, generators: list[ast.comprehension], scope: Scope, *, is_ordered: bool
    ) -> tuple[list[Scope], Maybe]:
        """The variables of each round of a comprehension, or of all together if it has many.

        Gives also what decides how many there are.
        """
        scopes = [Scope({}, scope, scope.globals, scope.owner, scope.receiver)]
        count: Maybe = ()
        for one in generators:
            further: list[Scope] = []
            for outer in scopes:
                value = self.value(one.iter, outer)
                each = self.each(value)
                if each is None or len(each) * len(scopes) > _MOST_ROUNDS:
                    each = [derived(value) if each is None else join(*each)]
                count = join(count, *map(self.count_of, value))
                kept = []
                for number, element in enumerate(each):
                    inside = Scope({}, outer, scope.globals, scope.owner, scope.receiver)
                    self.assign(one.target, element, inside)
                    if all(self._may_be_true(condition, inside) for condition in one.ifs):
                        further.append(inside)
                        kept.append(number)
                order = value[0].order if len(value) == 1 and isinstance(value[0], Items) else None
                if order is not None and is_ordered:
                    self.put(f"order of {order[0]}", [order[1][at] for at in kept])
            scopes = further
        return scopes, count

    def _may_be_true(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a condition may hold: clear if both of its sides are plain values."""
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
                    self.use(join(given, right))
                    return (left[0] in inside) == isinstance(op, ast.In | ast.Eq)
        self.test(node, scope)
        return True

    def _plain_elements(self, maybe: Maybe) -> list[Any] | None:
        """The elements of a list of plain values."""
        atom = maybe[0] if len(maybe) == 1 else None
        if isinstance(atom, Known) and isinstance(atom.value, list | tuple | set | frozenset):
            return list(atom.value)
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
                args += self.spread(self.value(one.value, scope))
            else:
                args.append(self.value(one, scope))
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is None:
                keywords.update(self.spread_keywords(value))
            else:
                keywords[keyword.arg] = value
        special = self.special(node, callee, args, keywords, scope)
        return self.call(callee, args, keywords) if special is None else special
