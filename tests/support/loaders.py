"""Deterministic loaders: the bytes of a sample follow from its key, so any copy can be checked.

A key is `epoch * EPOCH + index`. Samples of different epochs differ, so one that strays shows.
Nothing here imports torch at the top: most child processes do without it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

EPOCH = 1_000_000
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def content(keys: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    """`width` bytes for every key: splitmix64, so that neighbours have nothing in common."""
    words = -(-width // 8)
    with np.errstate(over="ignore"):
        word = np.arange(words, dtype=np.uint64)
        z: npt.NDArray[np.uint64] = keys.astype(np.uint64)[:, None] * np.uint64(1 << 24) + word
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.ascontiguousarray(z.view(np.uint8).reshape(len(keys), words * 8)[:, :width])


def numbered_batch(epoch: int, start: int, stop: int, width: int) -> Batch:
    keys = np.arange(start, stop, dtype=np.int64) + epoch * EPOCH
    return content(keys, width), keys


class Numbered:
    """Batches of `(bytes, key)`. Each `iter()` is the next epoch; `samples` may be a list."""

    def __init__(self, samples: int | Sequence[int], batch: int, *, width: int = 37) -> None:
        self.samples = samples
        self.batch = batch
        self.width = width
        self.epochs_begun = 0
        self.samples_yielded = 0

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.epochs_begun
        self.epochs_begun += 1
        return self._epoch(epoch)

    def samples_in(self, epoch: int) -> int:
        return self.samples if isinstance(self.samples, int) else self.samples[epoch]

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        samples = self.samples_in(epoch)
        for start in range(0, samples, self.batch):
            stop = min(start + self.batch, samples)
            self.samples_yielded += stop - start
            yield numbered_batch(epoch, start, stop, self.width)


class Gated(Numbered):
    """Waits before the batch that begins with sample `at` of an epoch, until the gate is open."""

    def __init__(self, samples: int, batch: int, at: int) -> None:
        super().__init__(samples, batch)
        self.at = at
        self.gate = threading.Event()

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        for batch in super()._epoch(epoch):
            if batch[1][0] % EPOCH == self.at:
                self.gate.wait()
            yield batch


class Sized(Numbered):
    """The same with a bare `len`, which counts batches."""

    def __len__(self) -> int:
        return math.ceil(self.samples_in(0) / self.batch)


class ByEpoch(Sized):
    """A loader whose epochs depend on their number alone, as with a seeded sampler."""

    def set_epoch(self, epoch: int) -> None:
        self.epochs_begun = epoch


class Resumable(Sized):
    """A loader that can go on in the middle of an epoch in another process."""

    def __init__(self, samples: int, batch: int, *, width: int = 37, pause_secs: float = 0) -> None:
        super().__init__(samples, batch, width=width)
        self.pause_secs = pause_secs
        self.epoch = 0
        self.start = 0
        self.is_resumed = False

    def __iter__(self) -> Iterator[Batch]:
        if not self.is_resumed:
            self.epoch, self.start = self.epochs_begun, 0
        self.is_resumed = False
        self.epochs_begun = self.epoch + 1
        return self._rest()

    def _rest(self) -> Iterator[Batch]:
        samples = self.samples_in(self.epoch)
        while self.start < samples:
            time.sleep(self.pause_secs)  # pause: slow on purpose
            start, self.start = self.start, min(self.start + self.batch, samples)
            self.samples_yielded += self.start - start
            yield numbered_batch(self.epoch, start, self.start, self.width)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "start": self.start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.start = state["epoch"], state["start"]
        self.is_resumed = True


class Endless(Numbered):
    """A stream that never ends its first epoch."""

    def __init__(self, batch: int, *, width: int = 37) -> None:
        super().__init__(0, batch, width=width)

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        start = 0
        while True:
            yield numbered_batch(epoch, start, start + self.batch, self.width)
            start += self.batch


class Stuck(Numbered):
    """Yields its samples, then sits in Python code for ever: a loader on a hung file system."""

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        yield from super()._epoch(epoch)
        while True:
            time.sleep(3600)  # pause: hangs on purpose


class Broken(Numbered):
    """Raises, from a function with a name to search for, when it comes to sample `at`."""

    def __init__(self, samples: int, batch: int, *, at: int, width: int = 37) -> None:
        super().__init__(samples, batch, width=width)
        self.at = at

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        for batch in super()._epoch(epoch):
            if self.at in batch[1]:
                decode_broken_sample(self.at)
            yield batch


def decode_broken_sample(index: int) -> None:
    raise OSError(f"sample {index} is truncated")


class NumberedDataset:
    """A map-style dataset over the same samples, all of epoch 0, for a torch DataLoader."""

    def __init__(self, samples: int, *, width: int = 37, broken_at: int | None = None) -> None:
        self.samples = samples
        self.width = width
        self.broken_at = broken_at

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        if index == self.broken_at:
            decode_broken_sample(index)
        return content(np.array([index]), self.width)[0], index


def torch_loader(
    samples: int,
    batch: int,
    *,
    width: int = 37,
    broken_at: int | None = None,
    **options: Any,
) -> DataLoader[Any]:
    from torch.utils.data import DataLoader

    dataset: Any = NumberedDataset(samples, width=width, broken_at=broken_at)
    return DataLoader(dataset, batch_size=batch, **options)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Record:
    image: Any
    label: Any
    source: str = "camera"


class Fields(OrderedDict[str, Any]):
    """A dict subclass with a name of its own, as tokenizers have."""


class Opaque:
    """A plain Python object: it can travel only by pickle."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)
