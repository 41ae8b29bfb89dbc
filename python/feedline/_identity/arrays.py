"""Digests of NumPy's arrays and torch's tensors, by their bytes; neither is imported for it."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any

from feedline._identity.generators import add_numpy_generator
from feedline._identity.shown import type_name

if TYPE_CHECKING:
    from feedline._identity.digest_walk import Walk

# Arrays up to this size are read whole; of larger ones, evenly spread parts.
_MOST_BYTES = 1 << 30
_PART_BYTES = 1 << 20
# Of a file that is mapped so much is read; of more, only its size and time.
_SMALL_FILE_BYTES = 16 << 20
# Arrays up to this size are copied together, so many at a time.
_SMALL_BYTES = 1 << 16
_TOGETHER = 4096


def add_numpy(walk: Walk, value: Any, label: str, depth: int) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    mapped = getattr(value, "_mmap", None) if isinstance(value, numpy.memmap) else None
    if mapped is not None and value.filename is not None:
        # Its file may be larger than memory, and is read by whoever loads.
        begins = numpy.frombuffer(mapped, numpy.uint8).__array_interface__["data"][0]
        # Of a slice, filename and offset are those of what it was cut from.
        place = value.__array_interface__["data"][0] - begins
        walk.put("memmap", str(value.filename), str(value.offset), str(place))
        walk.put(str(value.dtype), str(value.shape), str(value.strides))
        if value.nbytes <= _SMALL_FILE_BYTES:
            flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
            add_bytes(walk, memoryview(flat) if flat.size else memoryview(b""), label)
        else:
            found = os.stat(value.filename)
            walk.put(str(found.st_size), str(found.st_mtime_ns))
    elif isinstance(value, numpy.ndarray):
        walk.put(walk.named(type(value)), str(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            walk.add(value.tolist(), label, depth + 1)
        else:
            flat = numpy.ascontiguousarray(value).reshape(-1)
            add_bytes(
                walk, memoryview(flat.view(numpy.uint8)) if flat.size else memoryview(b""), label
            )
    elif isinstance(value, numpy.generic | numpy.dtype):
        walk.put(walk.named(type(value)), repr(value))
    else:
        return add_numpy_generator(walk, value, numpy.random, label, depth)
    return True


def add_torch(walk: Walk, value: Any, label: str, depth: int) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    if isinstance(value, torch.Tensor):
        walk.put(
            type_name(type(value)), str(value.dtype), str(tuple(value.shape)), str(value.layout)
        )
        if value.device.type == "meta":
            return True
        plain = value.detach().as_subclass(torch.Tensor)
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        flat = plain.cpu().contiguous().reshape(-1)
        if flat.numel():
            add_bytes(walk, memoryview(flat.view(torch.uint8).numpy()), label)
    elif isinstance(value, torch.Generator):
        walk.put("generator", str(value.device))
        add_bytes(walk, memoryview(value.get_state().numpy()), label)
    elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        walk.put("torch", repr(value))
    else:
        return False
    return True


def add_bytes(walk: Walk, data: memoryview, label: str) -> None:
    size = data.nbytes
    walk.put(str(size))
    if size <= _MOST_BYTES:
        # Many processors have instructions for this one.
        walk.put(hashlib.sha256(data).digest())
        return
    walk.digester.say_opaque(label, f"{size / 1e9:.0f} GB, of which all but {_MOST_BYTES >> 30} GB")
    parts = _MOST_BYTES // _PART_BYTES
    for part in range(parts):
        first = part * (size - _PART_BYTES) // (parts - 1)
        walk.hasher.update(data[first : first + _PART_BYTES])


def add_stacked(walk: Walk, values: list[Any] | tuple[Any, ...], label: str) -> bool:
    """Arrays, or tensors, of one shape and type: copied together, some at a time."""
    kinds = set(map(type, values))
    kind = kinds.pop()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    stack: Any = None
    if kind is getattr(numpy, "ndarray", None):
        stack = numpy.stack  # type: ignore[union-attr]
        is_one = len({(one.shape, one.dtype) for one in values}) == 1
        is_plain = not values[0].dtype.hasobject
    elif kind is getattr(torch, "Tensor", None):
        stack = torch.stack  # type: ignore[union-attr]
        shapes = {(one.shape, one.dtype, one.device, one.layout) for one in values}
        is_one, is_plain = len(shapes) == 1, values[0].device.type == "cpu"
        is_plain = is_plain and values[0].layout is torch.strided  # type: ignore[union-attr]
    if stack is None or kinds or not is_one or not is_plain:
        return False
    if values[0].nbytes > _SMALL_BYTES:
        return False
    walk.put("stacked", type_name(kind))
    for first in range(0, len(values), _TOGETHER):
        part = values[first : first + _TOGETHER]
        walk.add(
            stack(
                [
                    getattr(one, "data", one) if torch and kind is torch.Tensor else one
                    for one in part
                ]
            ),
            label,
            1,
        )
    return True
