"""From what was typed, ``FILE.py:make_loader`` or ``module:make_loader``, to a loader.

A file is imported under its own name, with its folder first on ``sys.path`` as for a script: so a
loader's workers can import it too, whichever way they are started.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import shlex
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from feedline._cli.arguments import match, parse_args, place_of
from feedline._cli.failure import CommandFailedError, UsageError, trace_of
from feedline._loader import NotALoaderError, check_loader, made_by


def make(loader: str, args: Sequence[str] = ()) -> Any:
    """Import what is named, call it with the arguments, and return the loader.

    What is named may be a loader itself. Raises a ``CommandFailedError`` that says what to do.
    """
    target = _parse(loader)
    values = parse_args(args)
    found = _find(target, _imported(target))
    if not callable(found) or (isinstance(found, Iterable) and not isinstance(found, type)):
        return _made(target, found, values)
    positional = match(target.function, found, values)
    try:
        made = made_by(functools.partial(found, *positional, **values))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in values.items())
        raise CommandFailedError(
            f"{target.text} raised {_summary(error)}\n{trace_of(error)}\n"
            f"  try it alone: {target.alone(call=f'{target.function}({shown})')}"
        ) from error
    if made is None:
        raise CommandFailedError(
            f"{target.text} returned None, not a loader\n"
            f"  end it with: return loader   ({place_of(found)})"
        )
    try:
        check_loader(made)
    except NotALoaderError as error:
        raise CommandFailedError(
            f"{target.text} returned something of type {type(made).__name__}: {error.what}\n"
            f"  {error.hint or f'return {error.give}'}"
        ) from error
    return made


def alone(loader: str, args: Sequence[str] = ()) -> str:
    """Return a command that makes the loader and iterates it once, without Feedline."""
    target = _parse(loader)
    shown = ", ".join(f"{key}={value!r}" for key, value in parse_args(args).items())
    return target.alone("sum(1 for _ in {})", f"{target.function}({shown})")


class _Target(NamedTuple):
    """What was named."""

    text: str
    module: str
    function: str
    # Of the file, or None for a module.
    path: str | None

    @property
    def folder(self) -> str:
        return os.getcwd() if self.path is None else os.path.dirname(self.path)

    def alone(self, form: str = "{}", call: str = "") -> str:
        """Return a command that does the same without Feedline."""
        if self.module.isidentifier() or self.path is None:
            code = f"import {self.module}"
            if call:
                code += "; " + form.format(f"{self.module}.{call}")
        else:
            code = f"import runpy; made = runpy.run_path({f'{self.module}.py'!r})"
            if call:
                name, bracket, rest = call.partition("(")
                code += "; " + form.format(f"made[{name!r}]{bracket}{rest}")
        where = "" if self.folder == os.getcwd() else f"cd {shlex.quote(self.folder)}; "
        return f"{where}{os.path.basename(sys.executable)} -c {shlex.quote(code)}"


def _parse(text: str) -> _Target:
    place, colon, function = text.rpartition(":")
    is_name = all(part.isidentifier() for part in function.split("."))
    if not colon or not place or not is_name:
        raise UsageError(
            f'"{text}" does not name a function\n'
            "  write FILE.py:FUNCTION, such as data.py:make_loader, or package.module:FUNCTION"
        )
    if not place.endswith(".py") and os.sep not in place:
        if all(part.isidentifier() for part in place.split(".")):
            return _Target(text, place, function, None)
        raise UsageError(
            f'"{place}" is neither a Python file nor a module\'s name\n'
            "  a file's name ends in .py; a module's is like package.module"
        )
    path = os.path.abspath(place)
    if not os.path.isfile(path):
        raise UsageError(_no_file(place, path))
    module, extension = os.path.splitext(os.path.basename(path))
    if extension != ".py" or "." in module or not module:
        raise UsageError(
            f"{place} cannot be imported: its name is not that of a module\n"
            "  workers of the loader import it by name: call it something like data.py"
        )
    return _Target(text, module, function, path)


def _no_file(place: str, path: str) -> str:
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        inside = os.path.join(place, "data.py:make_loader")
        return f"{place} is a folder, not a Python file\n  name a file in it: {inside}"
    if not os.path.isdir(folder):
        return f"there is no file {place}: {folder} is not a folder\n  you are in {os.getcwd()}"
    here = sorted(entry for entry in os.listdir(folder) if entry.endswith(".py"))
    close = difflib.get_close_matches(name, here, 1, 0.75)
    if close:
        meant = place[: -len(name)] + close[0]
        return f"there is no file {place}\n  did you mean {meant}?"
    listed = f"it has {', '.join(here[:8])}" if here else "there are no Python files in it"
    return f"there is no file {place}\n  looked in {folder}: {listed}"


def _imported(target: _Target) -> types.ModuleType:
    if target.path is not None:
        known = getattr(sys.modules.get(target.module), "__file__", None)
        if target.module in sys.modules and known != target.path:
            is_pythons = target.module in sys.stdlib_module_names
            raise UsageError(
                f"{target.module}.py has the name of a module that is in use: "
                f"{'one of Python itself' if is_pythons else known}\n"
                "  rename it: nothing could import both"
            )
    # The module may read sys.argv, and these arguments are not meant for it.
    del sys.argv[1:]
    if target.folder not in sys.path[:1]:
        sys.path.insert(0, target.folder)
    try:
        return importlib.import_module(target.module)
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        raise CommandFailedError(
            f"{_origin(target)} ended with sys.exit({error.code!r}) while it was imported\n"
            f"{trace_of(error)}\n"
            '  put code that only a script needs under: if __name__ == "__main__":'
        ) from error
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and _is_itself(error.name, target):
            raise UsageError(
                f"there is no module {error.name} (searched from {os.getcwd()} on)\n"
                "  name a file instead, such as data.py:make_loader, or go to the folder that "
                "the package is in"
            ) from None
        raise CommandFailedError(
            f"{_origin(target)} raised {_summary(error)} while it was imported\n"
            f"{trace_of(error)}\n  {_way_out(error, target)}"
        ) from error


def _is_itself(name: str | None, target: _Target) -> bool:
    """Whether the missing module is the one that was asked for, or a package above it."""
    return name is not None and target.path is None and f"{target.module}.".startswith(f"{name}.")


def _way_out(error: BaseException, target: _Target) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error) and target.path:
        package = os.path.basename(target.folder)
        outside = f"{package}.{target.module}:{target.function}"
        return f"it is part of a package: go to the folder above and name it {outside}"
    return f"try it alone: {target.alone()}"


def _find(target: _Target, module: types.ModuleType) -> Any:
    found: Any = module
    for part in target.function.split("."):
        if not hasattr(found, part):
            there = _functions(module)
            close = difflib.get_close_matches(target.function, there, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            listed = ", ".join(there[:12]) + (", ..." if len(there) > 12 else "")
            has = f"it has {listed}" if there else "define it there: the file has no functions yet"
            raise UsageError(
                f'{_origin(target)} has no "{target.function}"\n  {hint}{has}',
            )
        found = getattr(found, part)
    return found


def _functions(module: types.ModuleType) -> list[str]:
    """What the user could mean: functions that are defined there, and loaders made there."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            getattr(value, "__module__", None) == module.__name__
            if isinstance(value, types.FunctionType | type)
            else hasattr(value, "__iter__") and not isinstance(value, str | bytes)
        )
    ]


def _made(target: _Target, found: Any, values: dict[str, Any]) -> Any:
    """What was named is not a function: then it should be a loader."""
    try:
        check_loader(found)
    except TypeError:
        raise UsageError(
            f"{target.text} is of type {type(found).__name__}: neither a function nor a loader\n"
            "  name a function that returns a DataLoader, or any iterable of batches"
        ) from None
    if values:
        raise UsageError(
            f"{target.text} is a loader, not a function, and takes no --arg\n"
            "  name a function that makes it to give it arguments"
        )
    return found


def _origin(target: _Target) -> str:
    return f"module {target.module}" if target.path is None else os.path.basename(target.path)


def _summary(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


__all__ = ["alone", "make"]
