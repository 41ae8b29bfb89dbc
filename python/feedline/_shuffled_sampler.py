"""The sampler of ``shuffle=True``: what a framework finds that builds a loader of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import RandomSampler

from feedline.orders import numbers_of

if TYPE_CHECKING:
    from feedline._dataloader import DataLoader


class ShuffledSampler(RandomSampler):
    """Yields what the loader's own epochs do: each iteration is the next epoch.

    While the loader has no seed, the order is torch's: a framework that has several processes takes
    care that they all draw the same one.
    """

    def __init__(self, loader: DataLoader[Any], dataset: Any, generator: Any) -> None:
        """Made by the loader."""
        super().__init__(dataset, generator=generator)
        self.loader = loader
        # The loader's epoch, and how many more have been iterated here.
        self._ahead = (0, 0)

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``iter()`` be this epoch."""
        self._ahead = self.loader._epoch, epoch - self.loader._epoch

    def __iter__(self) -> Iterator[int]:
        """One epoch."""
        seed, epoch = self.loader._seed, self.loader._epoch
        if seed is None:
            return super().__iter__()
        ahead = self._ahead[1] if self._ahead[0] == epoch else 0
        self._ahead = epoch, ahead + 1
        return numbers_of(self.loader._plan(), seed, epoch + ahead)
