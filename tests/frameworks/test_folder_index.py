"""A folder dataset's index is packed for workers: none of them comes to own a copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import feedline

torch = pytest.importorskip("torch")

SAMPLES = 200_000
# The list has some 30 MB.
MOST_GROWTH_KB = 8_000


def folder(loader: Any, base: Any = None) -> Any:
    """Make a dataset of files that nobody opens."""
    from torchvision.datasets import ImageFolder

    class Paths(base or ImageFolder):  # type: ignore[misc]
        def find_classes(self, directory: Any) -> Any:
            return ["cat", "dog"], {"cat": 0, "dog": 1}

        @staticmethod
        def make_dataset(*_: Any, **__: Any) -> list[tuple[str, int]]:
            return [(f"/photos/of/animals/{at:08}.jpg", at % 2) for at in range(SAMPLES)]

    return Paths("/photos", loader=loader)


def private_kb(path: str) -> int:
    """Tell what this process owns, each 10,000 samples."""
    if not path.endswith("9999.jpg"):
        return 0
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))


def test_a_worker_owns_no_more_after_an_epoch() -> None:
    dataset = folder(private_kb)
    before = dataset.samples
    told = torch.cat([kb for kb, _ in feedline.DataLoader(dataset, batch_size=5000, num_workers=1)])
    owned = told[told > 0].tolist()
    assert len(owned) == SAMPLES // 10_000
    assert owned[-1] - owned[0] < MOST_GROWTH_KB
    assert dataset.samples is before
    assert type(before) is list


def test_samples_are_what_they_are_without_workers() -> None:
    dataset = folder(lambda path: int(path[-12:-4]))
    subset = torch.utils.data.Subset(dataset, range(0, SAMPLES, 4001))
    batches = [
        list(feedline.DataLoader(subset, batch_size=16, num_workers=workers)) for workers in (0, 2)
    ]
    for alone, pooled in zip(*batches, strict=True):
        assert all(torch.equal(*both) for both in zip(alone, pooled, strict=True))


def test_folders_inside_other_datasets_are_found() -> None:
    from feedline import _folder_index
    from feedline._core import PackedSamples

    first, second = folder(len), folder(len)
    both = torch.utils.data.ConcatDataset([torch.utils.data.Subset(first, [0]), second])
    _folder_index.put(_folder_index.pack(both), keep_lists=False)
    for dataset in (first, second):
        assert type(dataset.samples) is PackedSamples
        assert dataset.imgs is dataset.samples
        assert dataset[7] == (len(dataset.samples[7][0]), 1)


def test_a_folder_that_two_subsets_have_in_common_is_packed_once() -> None:
    from feedline import _folder_index

    dataset = folder(len)
    parts = [torch.utils.data.Subset(dataset, [at]) for at in range(2)]
    assert len(_folder_index.pack(torch.utils.data.ConcatDataset(parts))) == 1


def test_a_class_that_reads_its_own_way_is_left_alone() -> None:
    from torchvision.datasets import ImageFolder

    from feedline import _folder_index

    class Own(ImageFolder):
        def __getitem__(self, at: int) -> Any:
            return self.samples.index(self.samples[at])

    assert _folder_index.pack(folder(len, Own)) == []
