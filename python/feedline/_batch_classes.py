"""Finding again, in a consumer, the classes that a loader's batches are made of.

Nothing is unpickled: a class is looked up by name and taken only if it is a record with the same
fields. Where it can't be found, because it was defined in the server's script or inside a function,
one with the same name and fields is made. A tensor's class is taken only if it is a subclass of
``torch.Tensor``, and none of its code runs: the attributes that the instance had are put into the
new one's ``__dict__``.
"""

import collections
import contextlib
import dataclasses
import enum
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast


def named_tuple(module: str, name: str, fields: Sequence[str]) -> type[Any]:
    """Find or make a namedtuple class with these fields."""
    found = _find(module, name)
    if isinstance(found, type) and issubclass(found, tuple):
        if tuple(getattr(found, "_fields", ())) == tuple(fields):
            return found
    made: Any = collections.namedtuple(_last(name), list(fields))  # type: ignore[misc]
    return cast("type[Any]", made)


def dataclass(module: str, name: str, fields: Sequence[str]) -> type[Any]:
    """Find or make a dataclass with these fields."""
    found = _find(module, name)
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        if [field.name for field in dataclasses.fields(found)] == list(fields):
            return found
    return dataclasses.make_dataclass(_last(name), list(fields))


def fill(cls: type[Any], fields: Sequence[str], values: Sequence[object]) -> object:
    """Make a dataclass instance without running its ``__init__``, as copying does."""
    made = object.__new__(cls)
    for field, value in zip(fields, values, strict=True):
        object.__setattr__(made, field, value)
    return made


def mapping(module: str, name: str, items: dict[Any, Any]) -> Mapping[Any, Any]:
    """Turn a dict into the mapping that it was, or leave it a dict."""
    found: Any = _find(module, name)
    if isinstance(found, type) and issubclass(found, Mapping):
        build: Callable[[dict[Any, Any]], Mapping[Any, Any]] = found
        # A mapping whose constructor takes other arguments stays a dict.
        with contextlib.suppress(TypeError):
            return found(**items) if dataclasses.is_dataclass(found) else build(items)
    return items


def split_tensor(tensor: Any) -> tuple[Any, dict[str, Any]]:
    """Return a plain tensor and the attributes of a tensor that is of a subclass.

    A TypeError says what of it could not be carried.
    """
    import torch

    cls = type(tensor)
    called = f"{cls.__module__}.{cls.__qualname__}"
    if _is_computed(cls):
        raise TypeError(f"a {called}, which computes its elements (__torch_dispatch__)")
    if any(vars(base).get("__slots__") for base in cls.__mro__):
        raise TypeError(f"a {called}, which keeps something in __slots__")
    if _find(cls.__module__, cls.__qualname__) is not cls:
        raise TypeError(f"a {called}, a class that nobody can import by this name")
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor), dict(vars(tensor))


def tensor_class(module: str, name: str, _fields: Sequence[str]) -> type[Any]:
    """Find a tensor's class; one that isn't there can't be made up."""
    import torch

    found = _find(module, name)
    if isinstance(found, type) and issubclass(found, torch.Tensor) and not _is_computed(found):
        return found
    raise TypeError(
        f"a tensor of the class {module}.{name}, which can't be imported here\n"
        '  put the class into a module of both, or take NumPy arrays: format="numpy"'
    )


def tensor_of_class(tensor: Any, cls: type[Any], attributes: dict[str, Any]) -> Any:
    """Turn a plain tensor into one of a subclass, over the same memory."""
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        made = tensor.as_subclass(cls)
    vars(made).update(attributes)
    return made


def _is_computed(cls: type[Any]) -> bool:
    import torch

    plain: Any = torch.Tensor.__torch_dispatch__
    return cls.__torch_dispatch__ is not plain or hasattr(cls, "__tensor_flatten__")


def enum_member(module: str, name: str, member: str) -> enum.Enum:
    """Find a member of an enumeration."""
    found = _find(module, name)
    if isinstance(found, type) and issubclass(found, enum.Enum) and member in found.__members__:
        return found[member]
    raise TypeError(
        f"{module}.{name}.{member} can't be imported here\n"
        '  put the enumeration into a module of both, or take NumPy arrays: format="numpy"'
    )


def numpy_dtype(name: str) -> Any:
    """Find NumPy's dtype of that name; bfloat16 is in a package of its own."""
    import numpy as np

    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise TypeError(
            "NumPy itself has no bfloat16\n"
            '  take the batch as torch tensors (format="torch"), or: pip install ml_dtypes'
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _find(module: str, name: str) -> object:
    if module == "__mp_main__":  # a loader's workers call the script this
        module = "__main__"
    found: object = sys.modules.get(module)
    if found is None:
        try:
            found = importlib.import_module(module)
        except Exception:  # whatever a module does when it is imported, the batch can do without it
            return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
