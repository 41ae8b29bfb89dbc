"""What ``parse_args()`` will give, called by the loader itself: found without calling it.

A parser is rebuilt from what is declared, without types and other code, and parses the command
line. Where that isn't clear (subcommands, actions of the user's) all of the command line counts.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

# What decides which words belong to which argument, and under which name they are found.
_SHAPE = ("dest", "nargs", "const", "action")


class _Unclear(Exception):
    pass


class _Shadow(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unclear(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Unclear(message)


@dataclass(frozen=True)
class Default:
    """Where nothing was typed: what was declared instead."""

    value: Any


@dataclass(eq=False)
class Parser:
    """An ArgumentParser that the user's code makes when it runs."""

    declared: list[tuple[list[Any], dict[str, Any], Any]] = field(default_factory=list)
    is_clear: bool = True

    def declare(self, names: list[Any], keywords: dict[str, Any], default: Any) -> None:
        self.declared.append((names, keywords, default))


@dataclass(eq=False)
class CommandLine:
    """The words, and what they give by name; None if that isn't clear."""

    argv: tuple[str, ...]
    parsed: dict[str, Any] | None


def command_line(parser: Parser | argparse.ArgumentParser | None) -> CommandLine:
    """What a parser makes of this process's command line."""
    argv = tuple(sys.argv[1:])
    try:
        if isinstance(parser, Parser) and parser.is_clear:
            shadow = _declared(parser)
        elif isinstance(parser, argparse.ArgumentParser):
            shadow = _copied(parser)
        else:
            return CommandLine(argv, None)
        return CommandLine(argv, vars(shadow.parse_known_args(list(argv))[0]))
    except Exception:  # argparse's own for what was declared in an odd way
        return CommandLine(argv, None)


def _declared(parser: Parser) -> argparse.ArgumentParser:
    shadow = _Shadow(add_help=False)
    for names, keywords, default in parser.declared:
        shape = {key: value for key, value in keywords.items() if key in _SHAPE}
        shadow.add_argument(*names, **shape, default=Default(default))
    return shadow


def _copied(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    shadow = _Shadow(add_help=False, prefix_chars=parser.prefix_chars)
    if parser.fromfile_prefix_chars:
        raise _Unclear
    for action in parser._actions:
        kind = type(action)
        if kind.__module__ != "argparse" or kind.__name__ == "_SubParsersAction":
            raise _Unclear
        if kind.__name__ in ("_HelpAction", "_VersionAction"):
            continue
        mine = copy.copy(action)
        mine.type, mine.choices, mine.required = None, None, False
        mine.default = Default(parser.get_default(action.dest))
        shadow._add_action(mine)
    return shadow
