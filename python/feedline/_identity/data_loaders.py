"""What of a DataLoader's options says how it works, and not what it loads."""

from __future__ import annotations

import sys
from typing import TypeVar

_Value = TypeVar("_Value")
# How a DataLoader works, not what it loads.
HOW_IT_LOADS = frozenset(
    {
        *("num_workers", "pin_memory", "pin_memory_device", "prefetch_factor", "timeout"),
        *("persistent_workers", "multiprocessing_context", "in_order"),
    }
)
OF_A_RUN = HOW_IT_LOADS | {"_iterator", "_DataLoader__multiprocessing_context"}


def is_data_loader(cls: type) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and issubclass(cls, data.DataLoader)


def what_is_loaded(cls: type, keywords: dict[str, _Value]) -> dict[str, _Value]:
    """The arguments of a class without those that say how a DataLoader works."""
    if not is_data_loader(cls):
        return keywords
    return {key: one for key, one in keywords.items() if key not in HOW_IT_LOADS}
