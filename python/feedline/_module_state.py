"""Brings to another process what a script has set in the modules that it imported.

The other process imports these modules anew. What it finds there is kept if it is the same, so that
nothing is replaced that others refer to, such as a constant or a sentinel.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import types
from collections.abc import Iterable
from typing import Any

from feedline._identity import State
from feedline._identity.digests import Digester

_log = logging.getLogger("feedline")

_MISSING = object()


def put(state: State) -> None:
    """Set in our own modules what another process has found in its own."""
    for (module, path), value in state.items():
        *classes, name = path.split(".")
        with contextlib.suppress(Exception):  # a module or a class that isn't there
            owner: Any = importlib.import_module(module)
            for one in classes:
                owner = getattr(owner, one)
            if not _is_same(vars(owner).get(name, _MISSING), value):
                setattr(owner, name, value)


def _is_same(ours: Any, theirs: Any) -> bool:
    if ours is theirs:
        return True
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, types.FunctionType):
        return ours.__code__ == theirs.__code__ and all(map(_is_same, _held(ours), _held(theirs)))
    if isinstance(ours, staticmethod | classmethod):
        return _is_same(ours.__func__, theirs.__func__)
    if isinstance(ours, property):
        return _is_same(ours.fget, theirs.fget)
    if isinstance(ours, type):
        return (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
    return _digest(ours) == _digest(theirs)


def _held(function: types.FunctionType) -> Iterable[Any]:
    """Defaults, and what a closure holds; both have as many, for their code is the same."""
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has no value yet
            yield cell.cell_contents


def _digest(value: Any) -> str:
    return Digester(lambda value, label: False).digest(value, "")
