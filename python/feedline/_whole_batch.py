"""Batches that travel whole: a pickle, with the bytes of tensors and arrays beside it."""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import torch

from feedline._core import WholeBatch

# Shorter ones are cheaper inside the pickle.
_LEAST_BYTES = 256
_COUNT_BYTES = 8


_Part = tuple[int, torch.dtype, tuple[int, ...], list[int] | None]
"""A tensor's number, dtype, shape in memory, and the order of its dimensions there."""


def _order(tensor: torch.Tensor) -> list[int] | None:
    """Return the dimensions of a tensor that is dense in another order, as ``channels_last``."""
    if tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return order if tensor.permute(order).is_contiguous() else None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        self.tensors: list[Any] = []
        self.buffers: list[Any] = []
        super().__init__(file, protocol=5, buffer_callback=self._keep)

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LEAST_BYTES:
            return True
        self.buffers.append(raw)
        return False

    def persistent_id(self, obj: Any) -> _Part | None:
        if type(obj) is not torch.Tensor or obj.is_quantized or obj.requires_grad:
            return None
        if obj.device.type != "cpu" or obj.layout != torch.strided:
            return None
        obj = obj.resolve_conj().resolve_neg()
        order = _order(obj)
        laid = (obj if order is None else obj.permute(order)).contiguous()
        # A single element may have any stride.
        flat = laid.as_strided((laid.numel(),), (1,))
        # As bytes: NumPy has no bfloat16, and others can't be unpickled.
        self.tensors.append(flat.view(torch.uint8).numpy())
        return len(self.tensors) - 1, obj.dtype, tuple(laid.shape), order


class _Unpickler(pickle.Unpickler):
    def __init__(self, head: bytes, batch: WholeBatch, tensors: int) -> None:
        self._batch = batch
        buffers = [batch.buffer(part) for part in range(tensors, len(batch))]
        super().__init__(io.BytesIO(head), buffers=buffers)

    def persistent_load(self, pid: Any) -> torch.Tensor:
        part, dtype, shape, order = pid
        flat: torch.Tensor = self._batch.tensor(part, "uint8", [math.prod(shape) * dtype.itemsize])
        tensor = flat.view(dtype).view(shape)
        if order is None:
            return tensor
        return tensor.permute([order.index(dim) for dim in range(len(order))])


def pack(batch: Any) -> tuple[bytes, list[Any]]:
    """Return a head, and the parts beside it: tensors first, then buffers of other objects."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(batch)
    head = len(pickler.tensors).to_bytes(_COUNT_BYTES, "little") + file.getvalue()
    return head, pickler.tensors + pickler.buffers


def unpack(batch: WholeBatch) -> Any:
    """Return the batch; its tensors and arrays lie over the parts."""
    head = batch.head
    tensors = int.from_bytes(head[:_COUNT_BYTES], "little")
    return _Unpickler(head[_COUNT_BYTES:], batch, tensors).load()
