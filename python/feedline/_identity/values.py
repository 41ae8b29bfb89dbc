"""What an expression of the user's code may stand for, before it has run.

Where several things are possible (a variable that is set in two branches) all are kept: ``Maybe``
is a tuple of them, and an empty one says that nothing is known.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from feedline._identity.command_line import CommandLine, Parser
from feedline._identity.sources import FunctionNode

UNKNOWN = object()
# What stands for an entry or a field that isn't there.
ABSENT = object()
# A text that is put together in more steps than this isn't worked out.
_MOST_FOLDS = 16


@dataclass(frozen=True, eq=False)
class Known:
    """An object that exists already, and the path by which it is reached: ``args.size``.

    A constant of the source has no path: it is compared with the source.
    """

    value: Any
    label: str


@dataclass(eq=False)
class Scope:
    """The variables of a function that is being followed."""

    variables: dict[str, Maybe]
    outer: Scope | None
    globals: dict[str, Any]
    # Of the method that this is: the class for super(), and the object.
    owner: Any = None
    receiver: Atom | None = None
    returned: Maybe = ()
    # What decides whether it returns before its end, and what had been done until then.
    leaving: Maybe = ()
    before_leaving: tuple[int, int, int, int] | None = None
    declared_global: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Function:
    """A function that the user's code defines when it runs."""

    node: FunctionNode
    scope: Scope
    owner: Any = None


@dataclass(eq=False)
class LocalClass:
    """A class that the user's code defines when it runs."""

    node: ast.ClassDef
    scope: Scope
    bases: Maybe
    attributes: dict[str, Maybe]

    @property
    def functions(self) -> dict[str, Function]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return {
            one.name: Function(one, self.scope, self)
            for one in self.node.body
            if isinstance(one, kinds)
        }


@dataclass(eq=False)
class Made:
    """An instance of a user's class that the user's code makes when it runs."""

    cls: type | LocalClass
    fields: dict[str, Maybe] = field(default_factory=dict)
    # What an instance of a subclass of dict holds as a dict.
    content: Table | None = None


@dataclass(eq=False)
class Items:
    """A list, tuple or set that is made."""

    items: list[Maybe]
    # Of a dict that exists: its label and its keys, of which the order counts here.
    order: tuple[str, list[Any]] | None = None
    # What decides how many there are.
    count: Maybe = ()
    is_used: bool = False
    is_sure: bool = False

    def parts(self) -> list[Maybe]:
        return [*self.items, self.count]


@dataclass(eq=False)
class Table:
    """A dict or a namespace that is made, by the keys that are constant."""

    items: dict[Any, Maybe]
    rest: Maybe = ()
    kind: type = dict
    # Labels of the dicts that exist of which it has entries: their keys, and the order of those.
    copied_from: tuple[str, ...] = ()
    # What decides how many there are.
    count: Maybe = ()
    is_used: bool = False
    is_sure: bool = False

    def parts(self) -> list[Maybe]:
        return [*self.items.values(), self.rest, self.count]

    @property
    def order(self) -> tuple[str, list[Any]] | None:
        """What the order of its entries comes from, and their keys, if it isn't the source."""
        keys = [*self.items, *([...] if self.rest else [])]
        return (" and ".join(self.copied_from), keys) if self.copied_from else None


@dataclass(eq=False)
class Derived:
    """What is computed from other things, which count as soon as it is used itself.

    A message that is only printed is never used.
    """

    sources: Maybe
    # What comes out, if that is a text that can be worked out: a name for getattr.
    value: Any = UNKNOWN
    folds: int = 0
    is_used: bool = False
    is_sure: bool = False

    def parts(self) -> list[Maybe]:
        return [self.sources]


@dataclass(eq=False)
class Array(Derived):
    """What a library has made of other things, which may be changed in its place."""

    # What an object was made of, by keyword: it has it under the same name, until it is changed.
    fields: dict[str, Maybe] = field(default_factory=dict)


@dataclass(eq=False)
class Truth(Derived):
    """Whether something is true, or there at all."""


@dataclass(eq=False)
class TypeOf(Derived):
    """Of which type something is."""


@dataclass(eq=False)
class Membership(Derived):
    """Whether a key is in a container."""

    containers: Maybe = ()

    def parts(self) -> list[Maybe]:
        return [self.sources, self.containers]


@dataclass(eq=False)
class Choice:
    """Stands beside the things that an expression may be: what decides which of them it is."""

    tests: Maybe
    is_used: bool = False
    is_sure: bool = False

    def parts(self) -> list[Maybe]:
        return [self.tests]


@dataclass(eq=False)
class Bound:
    """A function with its first argument."""

    function: Atom
    receiver: Atom


@dataclass(eq=False)
class Partial:
    """A function with some of its arguments."""

    function: Maybe
    args: list[Maybe]
    keywords: dict[str, Maybe]


@dataclass(eq=False)
class LibraryMethod:
    """A method that isn't the user's, of anything."""

    receiver: Atom
    name: str


@dataclass(eq=False)
class Parent:
    """``super()`` in a method of a class."""

    owner: Any
    receiver: Atom


Atom = (
    Known
    | Function
    | LocalClass
    | Made
    | Items
    | Table
    | Bound
    | Partial
    | LibraryMethod
    | Parent
    | CommandLine
    | Parser
    | Derived
    | Choice
)
Maybe = tuple[Atom, ...]

# More than so many things that a variable may be are too many to follow.
MOST_ALTERNATIVES = 12


def join(*all_of: Maybe) -> Maybe:
    """Everything that any of them may be."""
    found: dict[Any, Atom] = {}
    for maybe in all_of:
        for atom in maybe:
            found.setdefault(key_of(atom), atom)
    return tuple(found.values())


def content_of(atom: Atom | None) -> Atom | None:
    """What an object holds as a dict, where it is one; else the object itself."""
    return atom.content if isinstance(atom, Made) and atom.content is not None else atom


def is_dict_class(cls: type | LocalClass) -> bool:
    if isinstance(cls, type):
        return issubclass(cls, dict)
    bases = [one.value if isinstance(one, Known) else one for one in cls.bases]
    return any(isinstance(one, type | LocalClass) and is_dict_class(one) for one in bases)


def chosen(maybe: Maybe, tests: Maybe) -> Maybe:
    """The same things, of which these tests decide which it is."""
    if not tests:
        return maybe
    return (*without_choices(maybe), Choice(join(*(one.tests for one in choices(maybe)), tests)))


def absent(label: str) -> Maybe:
    """Nothing is there; that counts once whatever stands in its place is used."""
    return (Choice((Known(ABSENT, label),)),)


def choices(maybe: Maybe) -> tuple[Choice, ...]:
    return tuple(one for one in maybe if isinstance(one, Choice))


def without_choices(maybe: Maybe) -> Maybe:
    return tuple(one for one in maybe if not isinstance(one, Choice))


def derived(*sources: Maybe, value: Any = UNKNOWN) -> Maybe:
    """What is computed from all of these."""
    flat: list[Maybe] = []
    folds = 0
    for maybe in sources:
        for atom in maybe:
            flat.append(atom.sources if type(atom) is Derived else (atom,))
            folds = max(folds, atom.folds) if isinstance(atom, Derived) else folds
    value = value if folds < _MOST_FOLDS else UNKNOWN
    found = join(*flat)
    return (Derived(found, value, folds + 1),) if found or value is not UNKNOWN else ()


def array(*sources: Maybe) -> Maybe:
    """What a library makes of all of these."""
    return (Array(join(*sources)),)


def parts_without(maybe: Maybe, one: Atom) -> Maybe:
    """What something is computed from, but for one thing: what is added to that one itself."""
    found: list[Atom] = []
    left = list(maybe)
    while left:
        atom = left.pop()
        if isinstance(atom, LibraryMethod):
            left.append(atom.receiver)
        elif isinstance(atom, Derived | Choice):
            left += [] if atom is one else [inside for part in atom.parts() for inside in part]
        else:
            found.append(atom)
    return tuple(found)


def arrays_of(maybe: Maybe) -> list[Array]:
    """Those that something is, or is a view of."""
    found: list[Array] = []
    for atom in maybe:
        inside = atom.sources if type(atom) is Derived else (atom,)
        found += [one for one in inside if isinstance(one, Array)]
    return found


def constants(maybe: Maybe) -> list[Any] | None:
    """The plain values that something may be; None unless all are known."""
    found = []
    for atom in without_choices(maybe):
        value = atom.value if isinstance(atom, Known | Derived) else UNKNOWN
        if value is not None and not isinstance(value, str | int | float | bytes):
            return None
        found.append(value)
    return found or None


def truth(maybe: Maybe) -> Maybe:
    """Whether something is true, or there at all."""
    return (Truth(maybe),) if maybe else ()


def is_constant(atom: Atom) -> bool:
    """Whether something stands in the source as it is, and is compared with that."""
    return isinstance(atom, Known) and not atom.label


def text_of(maybe: Maybe) -> str | None:
    """The one text that something is, if that is known."""
    found = constants(maybe)
    return found[0] if found and len(found) == 1 and isinstance(found[0], str) else None


def key_of(atom: Atom) -> tuple[Any, ...]:
    if isinstance(atom, Known):
        return (id(atom.value), atom.label)
    if isinstance(atom, Bound):
        return (key_of(atom.function), key_of(atom.receiver))
    if isinstance(atom, Function):
        return (id(atom.node), id(atom.scope))
    if isinstance(atom, LibraryMethod):
        return (key_of(atom.receiver), atom.name)
    if isinstance(atom, Derived):
        value = None if atom.value is UNKNOWN else atom.value
        sources = [key_of(one) for part in atom.parts() for one in part]
        fields = atom.fields if isinstance(atom, Array) else ()
        return (type(atom), value, *sources, *fields)
    if isinstance(atom, Choice):
        return (Choice, *map(key_of, atom.tests))
    return (id(atom),)
