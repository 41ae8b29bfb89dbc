"""Batches that travel whole: a pickle, with the bytes of tensors and arrays beside it."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from feedline._core import WholeBatch

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Shorter ones are cheaper inside the pickle.
_LEAST_BYTES = 256
_COUNT_BYTES = 8


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

    def persistent_id(self, obj: Any) -> tuple[int, str, tuple[int, ...]] | None:
        if type(obj) is not torch.Tensor or obj.dtype not in _NAMES or obj.requires_grad:
            return None
        if obj.device.type != "cpu" or obj.layout != torch.strided or obj.is_neg():
            return None
        # As bytes: NumPy has no bfloat16.
        flat = obj.contiguous().reshape(-1)
        self.tensors.append(flat.view(torch.uint8).numpy())
        return len(self.tensors) - 1, _NAMES[obj.dtype], tuple(obj.shape)


class _Unpickler(pickle.Unpickler):
    def __init__(self, head: bytes, batch: WholeBatch, tensors: int) -> None:
        self._batch = batch
        buffers = [batch.buffer(part) for part in range(tensors, len(batch))]
        super().__init__(io.BytesIO(head), buffers=buffers)

    def persistent_load(self, pid: Any) -> torch.Tensor:
        part, dtype, shape = pid
        tensor: torch.Tensor = self._batch.tensor(part, dtype, list(shape))
        return tensor


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
