"""What the framework tests load: samples with an id, which says afterwards who got what."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

WIDTH = 4


class Labelled(Dataset[dict[str, torch.Tensor]]):
    """`x` follows from the id, `labels` from `x`, so that there is something to learn."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = pixels(index)
        return {"x": x, "labels": (x.sum() > 0).long(), "id": torch.tensor(index)}


def pixels(index: int) -> torch.Tensor:
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


def shuffled(samples: int, batch: int, **options: Any) -> DataLoader[Any]:
    """Make a loader whose order is another one in each epoch, so that a rest of one is telling."""
    order = torch.Generator().manual_seed(5)
    return DataLoader(Labelled(samples), batch, shuffle=True, generator=order, **options)


def orders(samples: int, epochs: int) -> list[list[int]]:
    """Give the ids in the order in which `shuffled` yields them, epoch by epoch."""
    loader = shuffled(samples, samples)
    return [[i for batch in loader for i in batch["id"].tolist()] for _ in range(epochs)]
