"""Using a value: from there on all of it counts, and so does what its code reaches."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from feedline._identity.command_line import CommandLine, Parser
from feedline._identity.files import Content
from feedline._identity.inert import changes_in_place, sets_state
from feedline._identity.origin import is_container, is_user, is_user_class, is_user_function
from feedline._identity.part import Part
from feedline._identity.values import (
    ABSENT,
    Array,
    Atom,
    Bound,
    Choice,
    Derived,
    Function,
    Items,
    Known,
    LibraryMethod,
    LocalClass,
    Made,
    Maybe,
    Membership,
    Parent,
    Partial,
    Table,
    Truth,
    TypeOf,
    arrays_of,
    chosen,
    is_constant,
    join,
    parts_without,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

# Of so many objects of a class the fields are told apart.
_MOST_OF_A_CLASS = 500


class Uses(Part):
    """What is used: all of it counts from there on."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was used yet."""
        super().__init__(follower)
        # What is still to be followed.
        self.todo: list[tuple[bool, Callable[[], object]]] = []
        # By address: what is, or was; with whether it surely counts.
        self._begun: dict[Any, bool] = {}
        self.certainty = follower.recorder.certainty
        # By class: how many objects of it a digest has met.
        self._met: collections.Counter[type] = collections.Counter()
        # By address: objects that count as a whole, so that all that is set on them does; and those
        # that surely do.
        self.recorded: set[int] = set()
        self._recorded_surely: set[int] = set()
        # By address: what a library's code was told about an object, by its methods.
        self._told: dict[int, Array] = {}
        # By address: fields that the user's code sets on objects that exist already.
        self.written: dict[int, dict[str, Maybe]] = {}

    def use(self, maybe: Maybe) -> None:
        """All of it counts from here on."""
        # Not by recursion: what a loop puts together may be nested deeply.
        left = list(reversed(maybe))
        while left:
            atom = left.pop()
            if isinstance(atom, Known):
                self.record(atom.value, atom.label)
            elif isinstance(atom, Truth | TypeOf | Membership):
                if self._is_new(atom):
                    left += reversed(self._follower.conditions.tested(atom))
                    self._recorder.alive.append(atom)
            elif isinstance(atom, Items | Table | Derived | Choice):
                if self._is_new(atom):
                    left += [one for part in reversed(atom.parts()) for one in reversed(part)]
                    self._recorder.alive.append(atom)
                if isinstance(atom, Items):
                    self.use_order(atom)
            elif isinstance(atom, Made):
                self._use_told(id(atom))
                self.once(
                    id(atom), functools.partial(self._follower.objects.escape, atom, atom.cls, "")
                )
                self._recorder.alive.append(atom)
            elif isinstance(atom, LibraryMethod | Parent):
                left.append(atom.receiver)
            elif isinstance(atom, CommandLine):
                self._recorder.put("sys.argv", list(atom.argv))
            elif isinstance(atom, Parser):
                for _, _, default in atom.declared:
                    left += default
            elif isinstance(atom, LocalClass):
                self.once(id(atom), functools.partial(self._use_class, atom))
                self._recorder.alive.append(atom)
            else:
                self.once(self._key(atom), functools.partial(self.use_call, atom))
                self._recorder.alive.append(atom)

    def follow_all(self) -> None:
        """Follow what is still to be followed, and first what surely counts."""
        while self.todo:
            at = next((at for at, (is_sure, _) in enumerate(self.todo) if is_sure), 0)
            is_sure, act = self.todo.pop(at)
            with self.certainty.of(is_sure):
                act()

    def use_all(self, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        for one in (*args, *keywords.values()):
            self.use(one)
        return ()

    def use_beside(self, *all_of: Maybe) -> None:
        """Code that isn't followed gets this: what it does with it isn't known."""
        with self.certainty.beside():
            for one in all_of:
                self.use(one)

    def use_deciding(self, tests: Maybe, before: tuple[int, int, int, int]) -> None:
        """What decides whether code ran counts if that did anything since ``noticed()``."""
        if self._effects.noticed() != before:
            is_own = self._effects.own() != before[:3]
            with self.certainty.of(is_own and self.certainty.is_sure):
                self.use(tests)

    def give(self, callee: Maybe, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        """A library's code gets this: it counts for sure once what comes of it does."""
        given = join(*args, *keywords.values())
        codes = [one.value for one in callee if isinstance(one, Known)]
        if any(map(sets_state, codes)):
            # A seed, or what a library makes by default from now on: what follows depends on it.
            self._effects.count += 1
            self.use(given)
        for one in given if any(map(changes_in_place, codes)) else keywords.get("out", ()):
            if not isinstance(one, Choice) and len(given) > 1:
                self.tell(one, tuple(other for other in given if other is not one))
        self.use_beside(callee, given)
        makes_object = any(isinstance(one, type) for one in codes)
        return (Array(join(callee, given), fields=dict(keywords) if makes_object else {}),)

    def tell(self, atom: Atom, value: Maybe) -> None:
        """A library's code may put this into an object: it counts once the object does."""
        if isinstance(atom, Items | Table):
            atom.count = join(atom.count, parts_without(value, atom))
            self._use_added(atom, value)
            return
        inside = arrays_of((atom,))
        for one in inside:
            self.add_source(one, value)
        if inside or is_constant(atom):
            return
        if not isinstance(atom, Known | Made):
            self.use(value)  # for it isn't known who else has it
            return
        address = id(atom.value if isinstance(atom, Known) else atom)
        self._recorder.alive.append(atom)
        is_sure = address in self._recorded_surely
        told = self._told.setdefault(address, Array((), is_used=is_sure, is_sure=is_sure))
        self.add_source(told, tuple(one for one in value if one is not atom))

    def _use_told(self, address: int) -> None:
        if self.certainty.is_sure:
            self._recorded_surely.add(address)
        if address in self._told:
            self.use((self._told[address],))

    def _is_new(self, atom: Items | Table | Derived | Choice) -> bool:
        """Whether something wasn't used yet, or not for sure; it is from now on."""
        is_new = not atom.is_used or (self.certainty.is_sure and not atom.is_sure)
        atom.is_used = True
        atom.is_sure = atom.is_sure or self.certainty.is_sure
        return is_new

    def _use_added(self, atom: Items | Table | Array, value: Maybe) -> None:
        """What is added to something that is used already."""
        if atom.is_used:
            with self.certainty.of(atom.is_sure):
                self.use(value)

    def use_order(self, items: Items) -> None:
        if items.order is not None:
            label, keys = items.order
            self._recorder.put(f"order of {label}", keys)

    def add_item(self, items: Items, value: Maybe) -> None:
        self._changes.change(items, ...)
        items.items.append(chosen(value, self._effects.tests))
        items.count = join(items.count, self._effects.tests)
        self._use_added(items, join(value, self._effects.tests))

    def add_entry(self, table: Table, key: Any, value: Maybe) -> None:
        value = chosen(value, self._effects.tests)
        if len(join(table.items.get(key, ()), value)) != len(table.items.get(key, ())):
            self._changes.change(table, key)
        table.items[key] = value
        table.count = join(table.count, self._effects.tests)
        self._use_added(table, value)

    def add_rest(self, table: Table, value: Maybe) -> None:
        value = chosen(value, self._effects.tests)
        if len(join(table.rest, value)) != len(table.rest):
            self._changes.change(table, ...)
        table.rest = join(table.rest, value)
        self._use_added(table, value)

    def add_source(self, one: Array, value: Maybe) -> None:
        """An array is changed in its place."""
        self._effects.mutations += 1
        value = chosen(parts_without(value, one), parts_without(self._effects.tests, one))
        one.sources, one.fields = join(one.sources, value), {}
        self._use_added(one, value)

    def _key(self, atom: Function | Bound | Partial) -> Any:
        if isinstance(atom, Function):
            return id(atom.node), id(atom.scope)
        if (
            isinstance(atom, Bound)
            and isinstance(atom.function, Known)
            and isinstance(atom.receiver, Known)
        ):
            return id(atom.function.value), id(atom.receiver.value)
        return id(atom)

    def use_call(self, atom: Atom) -> None:
        """Somebody else calls it, and does what he likes with what it returns."""
        self.use(self._follower.calls.call((atom,), [], {}))

    def _use_class(self, cls: type | LocalClass) -> None:
        self.use(self._follower.classes.construct(cls, [], {}))

    def once(self, key: Any, act: Callable[[], object]) -> None:
        is_sure = self.certainty.is_sure
        if key not in self._begun or (is_sure and not self._begun[key]):
            self._begun[key] = is_sure
            self.todo.append((is_sure, act))

    def record(self, value: Any, label: str) -> None:
        """An object that exists: its content, and what its code reaches."""
        if value is ABSENT:
            self._recorder.note_absent(label)
            return
        self._recorder.alive.append(value)
        self.recorded.add(id(value))
        self._use_told(id(value))
        self._follower.additions.use(value)
        if compared_as_a_whole(value):
            for one in list(self.written.get(id(value), {}).values()):
                self.use(one)
        if isinstance(value, Content):
            self._follower.files.use(value)
        elif not label:
            self._recorder.note_path(value, f"path {value!r}")
        elif isinstance(value, types.ModuleType):
            if is_user(value) and value.__name__ != "__main__":
                self._follower.modules.use_file(
                    value.__name__, getattr(value, "__file__", None) or ""
                )
            self._recorder.note_package(value.__name__)
        elif isinstance(value, types.FunctionType):
            act = functools.partial(self.use_call, self._recorder.known(value, label))
            if is_user_function(value) or hasattr(value, "__wrapped__"):
                self.once(id(value), act)
            else:
                self._recorder.note_code(label, value)
            self._recorder.note_package(value.__module__ or "")
        elif isinstance(value, types.MethodType):
            bound = Bound(
                self._recorder.known(value.__func__, label),
                self._recorder.known(value.__self__, f"{label}.__self__"),
            )
            self.use((bound,))
        elif isinstance(value, functools.partial) or hasattr(type(value), "__wrapped__"):
            self._recorder.put(label, value)
            self.once(
                id(value),
                functools.partial(self.use_call, self._recorder.known(value, label)),
            )
        elif isinstance(value, type):
            self._record_class(value, label)
        elif is_user_class(type(value)) and not isinstance(value, enum.Enum):
            self._recorder.put(f"class of {label}", type(value).__qualname__)
            self.once(
                id(value),
                functools.partial(
                    self._follower.objects.escape,
                    self._recorder.known(value, label),
                    type(value),
                    label,
                ),
            )
        elif isinstance(value, types.BuiltinFunctionType) and _is_of_module(value):
            self._recorder.note_code(label, value)
            self._recorder.note_package(value.__module__ or "")
        elif value is os.environ or label == "globals()":
            self._recorder.say_opaque(label, "all of it: the name that is looked up is not known")
        else:
            if not isinstance(value, str | int | float | bool | list | dict | tuple | None):
                self._recorder.note_package(type(value).__module__)
            if hasattr(value, "__wrapped__") and callable(value):
                self.once(
                    id(value),
                    functools.partial(self.use_call, self._recorder.known(value, label)),
                )
            self._recorder.put(label, value)
            self._recorder.note_path(value, f"{label}, as a path")

    def _record_class(self, cls: type, label: str) -> None:
        if not is_user_class(cls):
            self._recorder.note_code(label, cls)
            self._recorder.note_package(cls.__module__)
        elif issubclass(cls, enum.Enum):
            self._recorder.put(label, {one.name: one.value for one in cls})
        else:
            self.once(id(cls), functools.partial(self._use_class, cls))

    def meet(self, value: Any, label: str) -> bool:
        """What a digest names: record it, or say that it belongs into the digest as a whole.

        That is so for objects that just hold values, and for those of a class with very many.
        """
        cls = type(value)
        if is_user_class(cls) and not isinstance(value, type):
            self._met[cls] += 1
            if is_container(cls) or self._met[cls] > _MOST_OF_A_CLASS:
                self.once(
                    ("methods", id(cls)), functools.partial(self._follower.objects.use_methods, cls)
                )
                return False
        self.record(value, label)
        return True


def compared_as_a_whole(value: Any) -> bool:
    """Whether an object just holds values; others are asked by their methods."""
    kinds = (argparse.Namespace, types.SimpleNamespace)
    return isinstance(value, kinds) or is_container(type(value))


def _is_of_module(function: types.BuiltinFunctionType) -> bool:
    owner = function.__self__
    return (
        owner is None
        or isinstance(owner, types.ModuleType | type)
        or "." not in function.__qualname__
    )
