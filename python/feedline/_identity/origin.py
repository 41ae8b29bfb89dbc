"""Who wrote a piece of code: the user, or a library.

The user's code is compared by its source, a library's by its name and its package's version.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The standard library, where its modules lie and where that leads.
_FOLDERS = tuple(
    {_OURS + os.sep, os.path.dirname(os.__file__) + os.sep}
    | {os.path.realpath(os.path.dirname(os.__file__)) + os.sep}
)


@functools.cache
def is_library_file(path: str) -> bool:
    """Whether a file is the standard library's, an installed package's, or this library's."""
    if path.startswith("<frozen "):
        return True
    is_installed = (
        f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path
    )
    return is_installed or os.path.abspath(path).startswith(_FOLDERS)


def is_user_module(name: str) -> bool:
    """Whether a module that was imported is the user's; one that can't be found is."""
    if name == "__main__":
        return True
    module = sys.modules.get(name)
    if module is None or name in sys.builtin_module_names:
        return name.partition(".")[0] not in sys.stdlib_module_names
    return is_user(module)


def is_user(module: types.ModuleType) -> bool:
    if module.__name__ == "__main__":
        return True
    if module.__name__.partition(".")[0] in sys.stdlib_module_names:
        return False
    spec = getattr(module, "__spec__", None)
    path = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    if isinstance(path, str):
        return not is_library_file(path)
    # A namespace package has folders only; what has neither was made by hand.
    return not any(is_library_file(str(one)) for one in list(getattr(module, "__path__", ())))


def is_user_function(function: types.FunctionType) -> bool:
    path = function.__code__.co_filename
    if path.startswith("<") or not os.path.isabs(path):
        # Made by exec: a notebook's cell, `python -c`, a dataclass.
        return is_user_module(str(function.__globals__.get("__name__", "__main__")))
    # Not its __module__, which a decorator copies from what it decorates.
    return function.__globals__.get("__name__") == "__main__" or not is_library_file(path)


def is_user_class(cls: type) -> bool:
    return is_user_module(str(getattr(cls, "__module__", "builtins")))


def is_library_code(value: Any) -> bool:
    """Whether something is a function or a class that isn't the user's."""
    if isinstance(value, types.FunctionType):
        return not is_user_function(value)
    if isinstance(value, type):
        return not is_user_class(value)
    return isinstance(value, types.BuiltinFunctionType)


def package_version(module_name: str) -> tuple[str, str] | None:
    """A library's package and its version; None for the standard library and what has none."""
    package = module_name.partition(".")[0]
    if package in sys.stdlib_module_names or package == "feedline":
        return None
    version: Any = getattr(sys.modules.get(package), "__version__", None)
    return (package, str(version)) if version is not None else None


# Methods by which Python and libraries use an object that does something.
PROTOCOLS = frozenset(
    {
        *("__getitem__", "__iter__", "__next__", "__call__", "__len__", "__enter__", "__array__"),
    }
)


def library_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base is not object and not is_user_class(base)]


def is_container(cls: type) -> bool:
    """Whether objects of a class just hold values, as a configuration does."""
    if library_bases(cls):
        return False
    names = {name for base in cls.__mro__ if base is not object for name in vars(base)}
    return not names & PROTOCOLS
