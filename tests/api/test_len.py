"""`len(feed)`: exact from the moment that it can be known, a TypeError before."""

from __future__ import annotations

from typing import Any

import pytest

import feedline
from support.loaders import Endless, Numbered, Sized, torch_loader
from support.reading import cut, read


@pytest.mark.parametrize("loader_drops", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 16, 48, 100, 650, 1000])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_torch_dataloader_tells(
    loader_drops: bool, batch_size: int | None, drop_last: bool
) -> None:
    loader = torch_loader(650, 48, drop_last=loader_drops)
    samples = 624 if loader_drops else 650
    with (
        feedline.Server(loader, "train", epochs=2),
        feedline.attach("train", batch_size=batch_size, drop_last=drop_last) as feed,
    ):
        want = cut(samples, batch_size or 48, drop_last=drop_last)
        assert len(feed) == len(want)
        assert read(feed).sizes == want
        assert len(feed) == len(want)


def test_an_iterable_dataset_without_len_does_not_tell() -> None:
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            return iter(range(100))

    loader: Any = torch.utils.data.DataLoader(Stream(), batch_size=8)
    with (
        feedline.Server(loader, "train", epochs=2, ring=40),
        feedline.attach("train", batch_size=16) as feed,
    ):
        with pytest.raises(TypeError):
            len(feed)
        assert len(list(feed)) == 7
        assert len(feed) == 7


def test_without_len_it_is_a_type_error_and_right_after_one_epoch() -> None:
    with feedline.Server(Numbered(100, 8), "train", epochs=3, ring=40):
        feed = feedline.attach("train", batch_size=16)
        dropping = feedline.attach("train", batch_size=16, drop_last=True)
        with pytest.raises(TypeError, match="samples="):
            len(feed)
        assert read(feed).sizes == cut(100, 16)
        assert len(feed) == 7
        # What one consumer's epoch has shown, all of them know.
        assert len(dropping) == 6
        feed.close()
        dropping.close()


def test_it_stays_a_type_error_in_the_middle_of_the_first_epoch() -> None:
    with feedline.Server(Numbered(1000, 8), "train", epochs=1, ring=64):
        feed = feedline.attach("train", batch_size=16)
        iterator = iter(feed)
        next(iterator)
        with pytest.raises(TypeError):
            len(feed)
        del iterator
        feed.close()


def test_samples_tells_for_a_loader_that_cannot() -> None:
    with feedline.Server(Numbered(100, 8), "train", samples=100, epochs=1, ring=40) as server:
        with feedline.attach("train", batch_size=16) as feed:
            assert len(feed) == 7
        assert server.stats()["samples_per_epoch"] == 100
        with feedline.attach("train", batch_size=16, drop_last=True) as feed:
            assert len(feed) == 6
        with feedline.attach("train", batch_size=33) as feed:
            assert len(feed) == 4


def test_a_bare_len_counts_batches() -> None:
    """It says nothing of the samples in them: it serves for the loader's own batches only."""
    with feedline.Server(Sized(100, 8), "train", epochs=2, ring=40):
        own = feedline.attach("train")
        assert len(own) == 13
        cutting = feedline.attach("train", batch_size=16)
        with pytest.raises(TypeError):
            len(cutting)
        assert len(read(own).sizes) == 13
        assert len(cutting) == 7
        own.close()
        cutting.close()


def test_list_does_not_mind_an_unknown_length() -> None:
    """`list()` asks for a length hint first; a TypeError there must not end it."""
    with (
        feedline.Server(Numbered(100, 8), "train", epochs=1),
        feedline.attach("train", batch_size=16) as feed,
    ):
        assert len(list(feed)) == 7


def test_an_endless_stream_never_has_one() -> None:
    with feedline.Server(Endless(8), "train"):
        feed = feedline.attach("train", batch_size=16)
        assert read(feed, limit=50).exact
        with pytest.raises(TypeError):
            len(feed)
        feed.close()


def test_an_unknown_length_is_true() -> None:
    """`if feed:` asks for `len` when there is no `__bool__`; it must neither raise nor be False."""
    with (
        feedline.Server(Numbered(100, 8), "train", epochs=1),
        feedline.attach("train", batch_size=16) as feed,
    ):
        assert bool(feed)
