"""What all samples of a dataset look like, and how batches are built of their lanes.

A description is a pickle of ``(structure, leaves)``. A structure is ``("leaf", number)``,
``("tuple", (class, structures))``, ``("list", structures)`` or ``("dict", [(key, structure)])``; a
leaf is ``(kind, dtype, shape, class)``, with the dtype and the shape that torch's
``default_collate`` gives it. Samples that have no such description are not cut: their batches
travel whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

Structure = tuple[str, Any]
Leaf = tuple[str, str, tuple[int, ...], Any]
Description = tuple[Structure, list[Leaf]]

_NUMBERS = {float: "float", int: "int", bool: "bool"}
_LANES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}
"""The types that have lanes. Complex ones may be conjugate, which their bytes don't tell."""


class _Unfit(Exception):
    """A sample that can't be cut into lanes."""


def describe(sample: Any) -> Description | None:
    """Describe a sample, or return None where batches of such samples travel whole.

    What ``default_collate`` refuses is raised as it raises it.
    """
    default_collate([sample])
    leaves: list[Leaf] = []
    try:
        return _structure(sample, leaves), leaves
    except _Unfit:
        return None


def _structure(part: Any, leaves: list[Leaf]) -> Structure:
    kind = type(part)
    if kind is dict:
        return "dict", [(key, _structure(value, leaves)) for key, value in part.items()]
    if kind is list:
        return "list", [_structure(value, leaves) for value in part]
    if kind is tuple or (isinstance(part, tuple) and hasattr(part, "_fields")):
        return "tuple", (kind, [_structure(value, leaves) for value in part])
    leaves.append(_leaf(part))
    return "leaf", len(leaves) - 1


def _leaf(part: Any) -> Leaf:
    kind = type(part)
    if kind is torch.Tensor:
        name, of = "tensor", None
        if part.requires_grad or part.device.type != "cpu" or part.layout != torch.strided:
            raise _Unfit
    elif kind is np.ndarray:
        name, of = "array", part.dtype
        if not part.dtype.isnative:
            raise _Unfit
    elif isinstance(part, np.generic):
        name, of = "scalar", kind
    elif kind in _NUMBERS:
        name, of = _NUMBERS[kind], None
    else:
        raise _Unfit
    stacked = default_collate([part])
    if type(stacked) is not torch.Tensor or stacked.dtype not in _LANES:
        raise _Unfit
    if name == "scalar" and part.tobytes() != stacked.numpy().tobytes():
        raise _Unfit
    return name, str(stacked.dtype).removeprefix("torch."), tuple(stacked.shape[1:]), of


def builder(structure: Structure) -> Callable[[list[Any]], Any]:
    """Return a function from a batch's tensors, one for each leaf, to the batch itself."""
    word, argument = structure
    if word == "leaf":
        return lambda tensors: tensors[argument]
    if word == "dict":
        entries = [(key, builder(part)) for key, part in argument]
        return lambda tensors: {key: build(tensors) for key, build in entries}
    cls, structures = argument if word == "tuple" else (list, argument)
    parts = [builder(part) for part in structures]
    if hasattr(cls, "_fields"):
        return lambda tensors: cls(*(build(tensors) for build in parts))
    if list(structures) == [("leaf", number) for number in range(len(structures))]:
        # As most samples are: no more than the leaves themselves, in their order.
        return lambda tensors: list(tensors)
    return lambda tensors: [build(tensors) for build in parts]


def dumps(description: Description | None) -> bytes:
    """Pickle a description; nothing for none."""
    return b"" if description is None else pickle.dumps(description)


def loads(description: bytes) -> Description | None:
    """Undo ``dumps``."""
    return pickle.loads(description) if description else None
