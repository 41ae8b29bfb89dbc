"""What travels: plain tensors, or what a `pack_fn` made of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class TensorPayload:
    """A tensor as a `pack_fn` wraps it and an `unpack_fn` unwraps it; nothing is copied."""

    tensor: Any


@dataclass(eq=False)
class Packed:
    """What a `pack_fn` of the user's own gave, so that the consumer knows that it did."""

    data: Any


def pack(data: Any) -> tuple[Any, ...]:
    """Wrap the tensors of a batch."""
    return tuple(TensorPayload(part) if _is_tensor(part) else part for part in data)


def unpack(data: Any) -> tuple[Any, ...]:
    """Unwrap the tensors of a batch."""
    return tuple(part.tensor if isinstance(part, TensorPayload) else part for part in data)


def place(data: Any, device: Any) -> Any:
    """Move the tensors of a tuple, wrapped or not, to a device."""
    if not isinstance(data, tuple):
        return data
    return tuple(_moved(part, device) for part in data)


def _moved(part: Any, device: Any) -> Any:
    if isinstance(part, TensorPayload):
        return TensorPayload(_moved(part.tensor, device))
    return part.to(device) if _is_tensor(part) else part


def _is_tensor(part: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(part, torch.Tensor)
