"""What an expression of the user's code may stand for, before it has run.

Where several things are possible (a variable that is set in two branches) all are kept: ``Maybe``
is a tuple of them, and an empty one says that nothing is known.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from feedline._identity.sources import FunctionNode


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


@dataclass(eq=False)
class Items:
    """A list, tuple or set that is made."""

    items: list[Maybe]


@dataclass(eq=False)
class Table:
    """A dict or a namespace that is made, by the keys that are constant."""

    items: dict[Any, Maybe]
    rest: Maybe = ()


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


@dataclass(eq=False)
class CommandLine:
    """What ``parse_args()`` will give, called by the loader itself."""

    argv: tuple[str, ...]

    def option(self, name: str) -> tuple[str, ...]:
        """What was typed that may mean this attribute: the option, short ones, and no options."""
        found: list[str] = []
        keeps = True
        for token in self.argv:
            if token.startswith("--") and len(token) > 2:
                option = token[2:].partition("=")[0].replace("-", "_")
                option = option.removeprefix("no_")
                keeps = name.startswith(option) or option.startswith(name)
            elif token.startswith("-") and not token[1:2].isdigit():
                keeps = True
            if keeps:
                found.append(token)
        return tuple(found)


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


def key_of(atom: Atom) -> tuple[Any, ...]:
    if isinstance(atom, Known):
        return (id(atom.value), atom.label)
    if isinstance(atom, Bound):
        return (key_of(atom.function), key_of(atom.receiver))
    if isinstance(atom, Function):
        return (id(atom.node), id(atom.scope))
    if isinstance(atom, LibraryMethod):
        return (key_of(atom.receiver), atom.name)
    return (id(atom),)
