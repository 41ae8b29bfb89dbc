"""The datasets of the *loader* workload that cost next to nothing, or only time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import Dataset

# An epoch is longer than any run, so that no measurement has an epoch's end in it.
_EPOCH = 1_000_000_000
_SAMPLE_SECS = 0.05


class Ready(Dataset[Any]):
    """Samples that lie there."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return _EPOCH

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


def light() -> list[Any]:
    """Pictures of 3x224x224 bytes, with a label: 4.8 MB."""
    generator = torch.Generator().manual_seed(1)
    shape = (3, 224, 224)
    return [
        (torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator), number)
        for number in range(32)
    ]


def tiny() -> list[Any]:
    """Rows of 8 int64."""
    return list(torch.arange(8 * 1024).reshape(-1, 8))


class Sleeping(Dataset[Any]):
    """A sample takes 50 ms and no CPU, as from a distant store."""

    def __len__(self) -> int:
        return _EPOCH

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(_SAMPLE_SECS)
        return torch.tensor(index)
