"""`len(feed)` where batches vary in size, or where the loader's own length misleads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline


def batches(*sizes: int) -> list[Any]:
    return [np.full((size, 2), number) for number, size in enumerate(sizes)]


def known_length(feed: feedline.Feed) -> int | None:
    try:
        return len(feed)
    except TypeError:
        return None


def test_a_small_batch_in_mid_epoch_is_not_taken_for_the_last() -> None:
    """The rest of the epoch doesn't fit the ring: nobody can wait for its end to be sure."""
    sizes = [8, 5, 8, 3, *[8] * 9, 4]
    with (
        feedline.Server(batches(*sizes), "train", epochs=1, ring=20, stall_timeout_secs=5),
        feedline.attach("train", drop_last=True) as feed,
    ):
        assert [len(batch) for batch in feed] == sizes[:-1]


def check_three_epochs(sizes: tuple[int, ...], want: list[int], drop_last: bool) -> None:
    with (
        feedline.Server(batches(*sizes), "train", epochs=3),
        feedline.attach("train", drop_last=drop_last) as feed,
    ):
        assert [len(batch) for batch in feed] == want
        for _ in range(2):
            assert len(feed) == len(want)
            assert [len(batch) for batch in feed] == want


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(
    ("sizes", "dropping"),
    [
        ((8, 5, 8), [8, 5, 8]),
        ((8, 4, 4), [8, 4]),
        ((8, 8, 5), [8, 8]),
        ((5, 8, 8), [5, 8, 8]),
        ((8,), [8]),
        ((4, 8, 3), [4, 8]),
    ],
    ids=str,
)
def test_the_loaders_own_batches_of_varying_size(
    sizes: tuple[int, ...], dropping: list[int], drop_last: bool
) -> None:
    want = dropping if drop_last else list(sizes)
    check_three_epochs(sizes, want, drop_last)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("sizes", [(8, 0, 8), (8, 8, 0), (0, 8, 8), (0, 0)], ids=str)
def test_batches_of_zero_samples_do_not_count(sizes: tuple[int, ...], drop_last: bool) -> None:
    """They are never handed out, so a loader's `len` that has them in it is not the feed's."""
    want = [size for size in sizes if size]
    check_three_epochs(sizes, want, drop_last)


def test_an_iterable_dataset_whose_len_is_a_guess() -> None:
    """Torch takes it for the truth; what arrives is what counts."""
    torch = pytest.importorskip("torch")
    gate = threading.Event()

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 100

        def __iter__(self) -> Iterator[Any]:
            for number in range(64):
                if number == 32:
                    gate.wait()
                yield torch.full((3,), number)

    loader: Any = torch.utils.data.DataLoader(Stream(), batch_size=8)
    with (
        feedline.Server(loader, "train", epochs=2),
        feedline.attach("train") as own,
        feedline.attach("train", batch_size=5) as cutting,
    ):
        lengths = known_length(own), known_length(cutting)
        gate.set()
        assert lengths == (None, None)
        assert len(list(own)) == 8
        assert (len(own), len(cutting)) == (8, 13)
        assert len(list(cutting)) == 13


@pytest.mark.parametrize("copies", [2, 3])
def test_a_collate_function_that_makes_more_of_its_samples(copies: int) -> None:
    """The dataset's length says nothing of the samples in a batch: crops, augmented copies."""
    torch = pytest.importorskip("torch")
    gate = threading.Event()

    class Waiting:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            if index == 8:
                gate.wait()
            return torch.full((3,), index)

    def collate(samples: list[Any]) -> Any:
        return torch.stack(samples * copies)

    dataset: Any = Waiting()
    loader: Any = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=collate)
    arriving = -(-10 * copies // 4)
    with (
        feedline.Server(loader, "train", epochs=2),
        feedline.attach("train") as own,
        feedline.attach("train", batch_size=4) as cutting,
    ):
        lengths = known_length(own), known_length(cutting)
        gate.set()
        assert lengths[0] in (None, 3)
        assert lengths[1] in (None, arriving)
        assert len(list(own)) == 3
        assert (len(own), len(cutting)) == (3, arriving)
        assert len(list(cutting)) == arriving
