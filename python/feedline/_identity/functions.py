"""The user's functions: their source is run with what they are given."""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from feedline._identity import sources
from feedline._identity.changes import Place
from feedline._identity.origin import is_user_function
from feedline._identity.part import Part
from feedline._identity.values import (
    Atom,
    Derived,
    Items,
    Known,
    Made,
    Maybe,
    Scope,
    Table,
    derived,
    join,
    key_of,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

# A longer chain of calls is followed from its middle on later, with all that is given to it in use.
_MOST_DEPTH = 15
_MOST_NESTING = 100
# A function that calls itself is followed so often; what it is given then is used.
_MOST_ROUNDS = 2
_MOST_LEVELS = 6
# A call whose fields have changed since is followed so often.
_MOST_REPEATS = 8
# More calls than this are not followed.
_MOST_CALLS = 20_000
# With so many different things that are made on the way a function is followed; then with all.
_MOST_CONTEXTS = 24


class _Returned(NamedTuple):
    """What a call came to."""

    value: Maybe
    has_effects: bool
    raises: bool
    reads: Mapping[Place, int] = {}
    is_outside: bool = False


class Functions(Part):
    """Runs the source of functions, once for each of what they are given."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was called yet."""
        super().__init__(follower)
        self._returned: dict[Any, _Returned] = {}
        # How often each of these calls was followed.
        self._repeats: collections.Counter[Any] = collections.Counter()
        self._depth = 0
        # How deep in statements and expressions we are.
        self.nesting = 0
        # How often each function is being followed just now.
        self._rounds: collections.Counter[int] = collections.Counter()
        # By function, and by what it was given of what is made: what it returned.
        self._contexts: dict[Any, dict[Any, list[Maybe]]] = {}

    def call(
        self, function: types.FunctionType, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        if not is_user_function(function):
            self._recorder.note_package(function.__module__ or "")
            self._use_decorated(function)
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is None:
                return self._call_library(function, args, keywords)
            return self._follower.calls.call(
                (self._recorder.known(wrapped, function.__qualname__),), args, keywords
            )
        code = function.__code__
        variables: dict[str, Maybe] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                inside = cell.cell_contents
                variables[name] = (
                    self._recorder.known(inside, self._recorder.distinct(name, cell)),
                )
            except ValueError:  # it has no value yet
                variables[name] = ()
        label = self._recorder.label_of(function)
        owned = self._recorder.distinct(label, function)
        is_sent = function.__module__ == "__main__"
        node = sources.find(code, is_sent=is_sent)
        if node is None:
            self._effects.outside += 1
            self._use_code(function, owned, variables)
            return self._follower.uses.give((), args, keywords)
        self._recorder.note_source(
            label, sources.shown(node, code.co_filename), sources.digest_of(node)
        )
        for name, one in _defaults(function).items():
            variables[name] = (self._recorder.known(one, f"{owned}({name})"),)
        cell_of_class = variables.get("__class__", ())
        owner = (
            cell_of_class[0].value
            if cell_of_class and isinstance(cell_of_class[0], Known)
            else None
        )
        scope = Scope(variables, None, function.__globals__)
        return self.call_node(
            node,
            args,
            keywords,
            scope,
            function.__globals__,
            owner,
            self._recorder.known(function, ""),
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
            self._effects.outside += 1
            self._recorder.note_given(function, given)
            return self._follower.uses.give((self._recorder.known(function, ""),), args, keywords)
        defaults: dict[str, Maybe] = {
            name: (self._recorder.known(one, f"{function.__qualname__}({name})"),)
            for name, one in _defaults(function).items()
        }
        scope = Scope(defaults, None, function.__globals__)
        atom = self._recorder.known(function, "")
        return self.call_node(node, args, keywords, scope, function.__globals__, None, atom)

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
                self._follower.uses.use((self._recorder.known(one, self._recorder.label_of(one)),))

    def _use_code(
        self, function: types.FunctionType, label: str, variables: dict[str, Maybe]
    ) -> None:
        """A function without source: what it does, and all that it refers to."""
        self._recorder.note_source(
            label, "(its source is not known)", sources.digest_of_code(function.__code__)
        )
        for name, one in _defaults(function).items():
            self._follower.uses.use((self._recorder.known(one, f"{label}({name})"),))
        for root, chain in sources.chains(function.__code__):
            found: Maybe = variables.get(root, ())
            if root in function.__globals__:
                self._follower.module_state.of_globals(function.__globals__, root)
                found = (
                    self._recorder.known(
                        function.__globals__[root],
                        self._recorder.global_label(root, function.__globals__),
                    ),
                )
            elif not found and not hasattr(builtins, root):
                continue
            for name in chain:
                further = join(*(self._follower.attributes.get(one, name) for one in found))
                found = further or found
            self._follower.uses.use(found)

    def call_node(
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
        # What is run within code that isn't sure to count may have to be run for sure later.
        is_sure = self._recorder.certainty.is_sure
        before = self._returned.get((True, key)) or self._returned.get((is_sure, key))
        if before is not None and (
            self._changes.are_current(before.reads) or self._repeats[key] >= _MOST_REPEATS
        ):
            self._changes.read_again(before.reads)
            self._effects.count += before.has_effects
            self._effects.outside += before.is_outside
            self._effects.raises += before.raises
            return before.value
        given = join(*args, *keywords.values())
        # Through objects that exist, or are written down, it comes to an end.
        is_there = all(isinstance(one, Known | Table | Made) for one in given)
        most = _MOST_LEVELS if is_there else _MOST_ROUNDS
        if self._rounds[id(node)] >= most:
            self._effects.outside += 1
            self._follower.uses.use_beside(given)
            return derived(
                tuple(one for one in given if isinstance(one, Derived) or _is_value(one))
            )
        context = (key_of(atom), id(node))
        made = tuple(key_of(one) for one in given if not isinstance(one, Known))
        contexts = self._contexts.setdefault(context, {})
        if made and made not in contexts and len(contexts) >= _MOST_CONTEXTS:
            for one in given:
                self._follower.uses.use(join(*one.fields.values()) if isinstance(one, Made) else ())
            self._effects.outside += 1
            self._follower.uses.use_all(args, keywords)
            return derived(*(one for several in contexts.values() for one in several))
        if len(self._returned) >= _MOST_CALLS:
            self._recorder.say_opaque("make_loader", f"what follows after {_MOST_CALLS:,} calls")
            self._effects.outside += 1
            return self._follower.uses.give((), args, keywords)
        if self._depth >= _MOST_DEPTH or self.nesting >= _MOST_NESTING:
            # Its result counts as a whole, since who called it goes on without.
            rounds = self._rounds.copy()

            def later() -> None:
                before, self._rounds = self._rounds, rounds
                try:
                    self._follower.uses.use(
                        self.call_node(node, args, keywords, outer, globals_, owner, atom)
                    )
                finally:
                    self._rounds = before

            self._effects.count += 1
            self._follower.uses.todo.append((is_sure, later))
            self._recorder.alive.append(node)
            return ()
        self._repeats[key] += 1
        # Until it has returned, a function that calls itself returns nothing that is known.
        self._returned[is_sure, key] = _Returned((), has_effects=True, raises=True)
        self._recorder.alive += [atom, *args, *keywords.values()]
        effects, raises, mutations, outside = self._effects.noticed()
        tests, self._effects.tests = self._effects.tests, ()
        receiver = next(iter(args[0]), None) if owner is not None and args else None
        scope = Scope({}, outer, globals_, owner, receiver)
        self._bind(node, args, keywords, scope, outer)
        self._depth += 1
        self._rounds[id(node)] += 1
        try:
            with self._changes.noting_reads() as reads:
                value = self._follower.statements.run(node, scope)
        finally:
            self._effects.tests = tests
            self._depth -= 1
            self._rounds[id(node)] -= 1
        # Whoever calls it doesn't know what decides about it there.
        self._effects.count += self._effects.mutations > mutations
        self._returned[is_sure, key] = _Returned(
            value,
            self._effects.count > effects,
            self._effects.raises > raises,
            reads,
            self._effects.outside > outside,
        )
        if made:
            contexts.setdefault(made, []).append(value)
        return value

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
                    self._follower.expressions.value(defaults[name], outer)
                    if name in defaults and not is_there
                    else ()
                )
                bound[name] = outer.variables[name] if is_there and name in defaults else by_source
        scope.variables.update(bound)
        more = args[len(names) :]
        if given.vararg is not None:
            scope.variables[given.vararg.arg] = (Items(more),)
        else:
            self._follower.uses.use_all(more, {})
        if given.kwarg is not None:
            scope.variables[given.kwarg.arg] = (Table(dict(left)),)
        else:
            self._follower.uses.use_all([], left)


def _is_value(atom: Atom) -> bool:
    kinds = (str, bytes, bool, int, float, type(None))
    return isinstance(atom, Known) and isinstance(atom.value, kinds)


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    found = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    return {**found, **(function.__kwdefaults__ or {})}
