"""What was typed as ``--arg KEY=VALUE``, and whether a function takes it."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from feedline._cli.failure import UsageError


def parse_args(args: Sequence[str]) -> dict[str, Any]:
    """What was given as ``--arg``: Python literals, or else strings."""
    values: dict[str, Any] = {}
    for arg in args:
        key, equals, value = arg.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(
                f'--arg "{arg}" is not KEY=VALUE\n'
                "  write the name of a parameter and its value: --arg workers=8"
            )
        if key in values:
            raise UsageError(
                f"--arg {key}=... was given twice\n"
                f"  leave one out; a list is one value: --arg {key}=[1,2]"
            )
        values[key] = _literal(value)
    return values


def _literal(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def match(name: str, function: Callable[..., Any], values: dict[str, Any]) -> list[Any]:
    """Compare the values with the function's signature; return those that are positional."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return []
    parameters = signature.parameters
    shown = f"{name}{_bare(signature)} in {place_of(function)}"
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    named = [
        one.name
        for one in parameters.values()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    for key, value in values.items():
        if key not in named and not takes_all:
            close = difflib.get_close_matches(key, named, 1)
            hint = f"did you mean --arg {close[0]}=...?" if close else "leave it out"
            raise UsageError(f"{name} has no parameter {key}\n  {shown}\n  {hint}")
        default = parameters[key].default if key in named else None
        if isinstance(default, bool) and isinstance(value, str):
            raise UsageError(
                f'--arg {key}={value} is the text "{value}", and {key} is True or False\n'
                f"  {shown}\n  write --arg {key}=True or --arg {key}=False"
            )
    missing = [
        one
        for one in named
        if parameters[one].default is inspect.Parameter.empty and one not in values
    ]
    if missing:
        options = " ".join(f"--arg {one}=..." for one in missing)
        raise UsageError(
            f"{name} needs a value for {' and '.join(missing)}\n"
            f"  {shown}\n  give it with: {options}"
        )
    unnamed = [
        one
        for one in named
        if parameters[one].kind is inspect.Parameter.POSITIONAL_ONLY and one in values
    ]
    return [values.pop(one) for one in unnamed]


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """Without types: only names and defaults can be typed."""
    empty = inspect.Parameter.empty
    parameters = [one.replace(annotation=empty) for one in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=empty)


def place_of(function: Any) -> str:
    """``data.py, line 7``."""
    try:
        path, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (TypeError, OSError):
        return str(getattr(function, "__module__", "?"))
    return f"{os.path.basename(path or '?')}, line {line}"


__all__ = ["match", "parse_args", "place_of"]
