"""What the loader reads of imported modules: values that the script may have set since the import.

Another process imports these modules anew, and doesn't have what was set in this one: a global
configuration, an attribute of a class, a function that was replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
import types
from typing import Any

from feedline._identity.origin import is_user, is_user_class

# By module, and by the name in it, such as "CONFIG" or "Crops.SIZE".
State = dict[tuple[str, str], Any]

_OF_A_PROCESS: tuple[type, ...] = (
    *(types.ModuleType, logging.Logger, logging.Handler, threading.local, threading.Thread),
    *(type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event),
)


class ModuleState:
    """Collects what is found by a name in the user's modules, and in their classes."""

    def __init__(self) -> None:
        """Nothing was found yet."""
        self.found: State = {}
        self._own: dict[int, bool] = {}

    def of_globals(self, globals_: dict[str, Any], name: str) -> None:
        """A function has found a name in its module."""
        module = sys.modules.get(str(globals_.get("__name__")))
        if module is not None and vars(module) is globals_ and name in globals_:
            self._note(module, name, globals_[name])

    def of_class(self, cls: type, name: str) -> None:
        """A name was found in a class, or in one that it inherits from."""
        for owner in cls.__mro__:
            if name in vars(owner):
                module = sys.modules.get(owner.__module__)
                if module is not None and is_user_class(owner) and _at(module, owner) is owner:
                    self._note(module, f"{owner.__qualname__}.{name}", vars(owner)[name])
                return

    def _note(self, module: types.ModuleType, path: str, value: Any) -> None:
        if isinstance(value, _OF_A_PROCESS) or _is_defined_there(value, module.__name__, path):
            return
        if hasattr(type(value), "__set__") and not isinstance(value, property):
            return  # a slot
        if module.__name__ not in ("__main__", "__mp_main__") and self._is_own(module):
            self.found[module.__name__, path] = value

    def _is_own(self, module: types.ModuleType) -> bool:
        if id(module) not in self._own:
            self._own[id(module)] = getattr(module, "__spec__", None) is not None and is_user(
                module
            )
        return self._own[id(module)]


def _at(module: types.ModuleType, cls: type) -> Any:
    found: Any = module
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _is_defined_there(value: Any, module: str, path: str) -> bool:
    """Whether it is the function or the class that the module defines under this name."""
    inner = value.fget if isinstance(value, property) else value
    if isinstance(value, staticmethod | classmethod):
        inner = value.__func__
    if not isinstance(inner, types.FunctionType | type):
        return False
    return inner.__module__ == module and inner.__qualname__ == path
