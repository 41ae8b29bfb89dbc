"""The keywords of ``Server``, ``serve`` and ``share``, from the core's table of options.

An option is declared once, in ``crates/feedline-core/src/options/mod.rs``; ``_server_options.py``
is written from there, for type checkers and editors. Nothing here knows any option but ``allow``,
whose names have to be looked up, and the one pair that can't go together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from feedline import _core
from feedline._access import resolve_allow
from feedline._errors import FeedValueError, explained, given, option

_F = TypeVar("_F", bound=Callable[..., Any])

SERVER_OPTIONS = tuple(keyword for keyword, *_ in _core.server_options())


def check_options(options: Mapping[str, Any]) -> _core.ServerOptions:
    """What a server was asked for; an error for what can't be, or a keyword that there isn't."""
    resolved = dict(options)
    if "allow" in resolved:
        uids, gids = resolve_allow(resolved["allow"])
        resolved["allow"] = [*uids, *(f"@{gid}" for gid in gids)]
    checked = _core.ServerOptions(resolved)
    if checked["replay"] and checked["state_file"] is not None:
        raise FeedValueError(
            explained(
                *(given("replay", True), " and ", option("state_file")),
                " exclude each other: a replayed epoch is loaded from its start again",
                hint="leave one of them out",
            )
        )
    return checked


def server_parameters() -> list[inspect.Parameter]:
    """Every option as a parameter of a function."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(keyword, kind, default=default, annotation=annotation)
        for keyword, annotation, default, _ in _core.server_options()
    ]


def showing(parameters: Iterable[inspect.Parameter]) -> Callable[[_F], _F]:
    """Have ``help()``, notebooks and the reference show these instead of ``**options``."""

    def show(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        # What the function says itself counts.
        shown = {one.name: one for one in own}
        shown.update((one.name, one) for one in parameters if one.name not in shown)
        whole = signature.replace(parameters=list(shown.values()))
        function.__signature__ = whole  # type: ignore[attr-defined]
        return function

    return show


__all__ = ["SERVER_OPTIONS", "check_options", "server_parameters", "showing"]
