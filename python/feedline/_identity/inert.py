"""Library code that only makes something of what it is given.

What it is given counts once the thing that it makes is used: a loss, a model or a validation loader
that ``make_loader`` makes beside the loader changes nothing that is loaded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any

# Modules of torch whose classes do nothing when an object is made but to keep what it is made of.
_MODULES = ("torch.utils.data.", "torch.nn.", "torch.optim.")
_CLASSES = {"torch.device", "torch.Size", "torch.Tensor"}
# What draws random numbers changes what is drawn next; what has an `out` changes that.
_RANDOM = ("rand", "normal", "bernoulli", "multinomial", "poisson", "seed", "set_", "init")
_CHANGES = {"out", "generator"}
_IN_PLACE = {"builtins", "random", "numpy", "torch", "heapq", "bisect", "operator", "_operator"}
# What puts something into a file changes none of what is loaded.
_WRITES = ("save", "dump", "write")
_OF_NUMPY = frozenset(
    {
        *("arange", "array", "asarray", "zeros", "ones", "full", "linspace", "logspace", "eye"),
        *("concatenate", "stack", "where", "log", "exp", "sqrt", "mean", "std", "power", "sum"),
        *("maximum", "minimum", "clip", "bincount", "unique", "argsort", "cumsum", "prod"),
    }
)


def is_inert_class(cls: type) -> bool:
    """Whether making an object of a library's class does nothing else."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    return name.startswith(_MODULES) or name in _CLASSES


def is_inert_function(function: Any, keywords: Iterable[str]) -> bool:
    """Whether a library's function does nothing but to compute what it returns."""
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or _CHANGES & set(keywords):
        return False
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if isinstance(function, types.BuiltinFunctionType) and torch is not None:
        is_torch = getattr(torch, name, None) is function
        if is_torch and not name.endswith("_") and not name.startswith(_RANDOM):
            return True
    return name in _OF_NUMPY and numpy is not None and getattr(numpy, name, None) is function


def changes_in_place(function: Any) -> bool:
    """Whether a library's function may change what it is given: known of Python's and NumPy's."""
    module = str(getattr(function, "__module__", None) or "").partition(".")[0]
    name = str(getattr(function, "__name__", ""))
    return module in _IN_PLACE and not name.startswith(_WRITES)


def sets_state(function: Any) -> bool:
    """Whether a library's function sets what others of its functions do from then on."""
    name = getattr(function, "__name__", "")
    return isinstance(name, str) and ("seed" in name or name.startswith("set_default"))
