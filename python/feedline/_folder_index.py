"""The index of a folder dataset, packed for a pool's workers.

torchvision's ``DatasetFolder`` keeps a list of millions of tuples. A worker that reads one writes
its reference count, and so comes to own a copy of the page that it lies in: after an epoch, each
worker has copied the list. In the forker, packed samples take the list's place. The training job's
own dataset stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from feedline._core import PackedSamples

# What is shorter is not worth it.
_LEAST_SAMPLES = 10_000
# Methods that would notice. A class that has its own is left alone.
_READING = ("__getitem__", "__getitems__", "__len__", "__getattr__", "__getattribute__")
# `imgs` is the name that ImageFolder had first.
_NAMES = ("samples", "imgs")

Indexes = list[tuple[Any, PackedSamples]]

# The training job's lists, in a forker that was forked from it. To free them would copy them first.
_lists_of_job: list[Any] = []


def pack(dataset: Any) -> Indexes:
    """Pack the indexes of all folder datasets that this one consists of."""
    found = []
    # Subsets of one dataset have it in common.
    for folder in {id(folder): folder for folder in _folders(dataset)}.values():
        samples = vars(folder)["samples"]
        packed = PackedSamples.pack(samples) if len(samples) >= _LEAST_SAMPLES else None
        if packed is not None:
            found.append((folder, packed))
    return found


def put(indexes: Indexes, *, keep_lists: bool) -> None:
    """Have the datasets use their packed indexes."""
    for folder, packed in indexes:
        attributes: dict[str, Any] = folder.__dict__
        samples = attributes["samples"]
        if keep_lists:
            _lists_of_job.append(samples)
        for name in _NAMES:
            if attributes.get(name) is samples:
                attributes[name] = packed


def _folders(dataset: Any) -> Iterator[Any]:
    kind = type(dataset)
    if kind is Subset:
        yield from _folders(dataset.dataset)
    elif kind is ConcatDataset:
        for part in dataset.datasets:
            yield from _folders(part)
    else:
        # Who has such a dataset has imported it.
        module = sys.modules.get("torchvision.datasets.folder")
        known = getattr(module, "DatasetFolder", None)
        if known is not None and isinstance(dataset, known) and _reads_like(dataset, known):
            yield dataset


def _reads_like(dataset: Any, known: type) -> bool:
    kind = type(dataset)
    same = all(getattr(kind, name, None) is getattr(known, name, None) for name in _READING)
    has_own = any(hasattr(kind, name) for name in _NAMES)
    return same and not has_own and type(vars(dataset).get("samples")) is list
