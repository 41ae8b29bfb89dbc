"""Batches that are channels last come back channels last; other orders of a sample stay, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feedline
from batches.test_structure import through

torch = pytest.importorskip("torch")

N = 10
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def images(*shape: int, memory_format: Any = LAST) -> Any:
    size = int(np.prod(shape))
    return torch.arange(size).reshape(shape).to(torch.float32, memory_format=memory_format)


SHAPES = [
    ((N, 3, 4, 5), LAST),
    ((N, 1, 4, 5), LAST),
    ((N, 3, 1, 1), LAST),
    ((N, 3, 2, 4, 5), LAST_3D),
]


@pytest.mark.parametrize(("shape", "memory_format"), SHAPES)
@pytest.mark.parametrize("mode", ["cow", "copy", "readonly"])
def test_channels_last(shape: Any, memory_format: Any, mode: Any) -> None:
    want = images(*shape, memory_format=memory_format)
    with (
        feedline.Server([{"image": want, "label": torch.arange(N)}] * 2, "train", epochs=1),
        feedline.attach("train", batch_size=4, mode=mode) as feed,
    ):
        both = torch.cat([want, want])
        for number, got in enumerate(feed):
            image = got["image"]
            assert image.is_contiguous(memory_format=memory_format)
            assert image.stride() == want[:4].stride()
            assert torch.equal(image, both[number * 4 : number * 4 + 4])


@pytest.mark.parametrize(("shape", "memory_format"), SHAPES)
def test_channels_last_in_whole_batches(shape: Any, memory_format: Any) -> None:
    want = images(*shape, memory_format=memory_format)
    for got, _ in through([(want, "name")] * 2):
        assert got.stride() == want.stride()
        assert torch.equal(got, want)


def test_a_plain_batch_stays_plain() -> None:
    (got,) = through([torch.zeros(N, 3, 4, 5)])
    assert got.stride() == (60, 20, 5, 1)


def test_numpy_keeps_the_order_of_a_sample() -> None:
    want = np.moveaxis(np.arange(N * 60).reshape(N, 4, 5, 3), -1, 1)
    first, second = through([want], batch_size=6)
    assert first.strides == want.strides
    assert np.array_equal(first, want[:6])
    assert np.array_equal(second, want[6:])


@pytest.mark.parametrize("taken_as", ["numpy", "torch"])
def test_the_other_framework_sees_the_same_order(taken_as: Any) -> None:
    want = images(N, 3, 4, 5)
    with (
        feedline.Server([want], "train", epochs=1),
        feedline.attach("train", format=taken_as) as feed,
    ):
        (got,) = feed
    strides = got.strides if taken_as == "numpy" else tuple(4 * by for by in got.stride())
    assert strides == want.numpy().strides
    assert np.array_equal(np.asarray(got), want.numpy())


def test_a_batch_with_the_samples_innermost_has_them_one_after_the_other() -> None:
    """Fortran order: each sample keeps its own, the batch can't."""
    want = np.asfortranarray(np.arange(N * 12).reshape(N, 3, 4))
    first, second = through([want], batch_size=7)
    assert first.strides == (96, 8, 24)
    assert np.array_equal(np.concatenate([first, second]), want)
    (whole, _) = through([(want, "name")])[0]
    assert whole.strides == want.strides
    assert np.array_equal(whole, want)


def test_the_first_batch_s_order_is_everyone_s() -> None:
    last, first = images(N, 3, 4, 5), images(N, 3, 4, 5, memory_format=torch.contiguous_format)
    for batches in ([last, first, last], [first, last, first]):
        for got in through(batches, batch_size=N):
            assert got.stride() == batches[0].stride()
            assert torch.equal(got, first)


def test_gaps_are_closed_and_the_order_stays() -> None:
    want = images(N, 4, 4, 5)[:, 1:3, :, 1:]
    first, second = through([want], batch_size=7)
    assert first.is_contiguous(memory_format=LAST)
    assert torch.equal(torch.cat([first, second]), want)


def test_grey_that_was_expanded_to_rgb_is_plain() -> None:
    want = torch.arange(N * 20).reshape(N, 1, 4, 5).expand(N, 3, 4, 5)
    (got,) = through([want])
    assert got.is_contiguous()
    assert torch.equal(got, want)


def test_writing_into_one_batch_leaves_the_others_alone() -> None:
    want = images(N, 3, 4, 5)
    with (
        feedline.Server([want] * 20, "train", epochs=1, ring=3 * N),
        feedline.attach("train", batch_size=N) as feed,
    ):
        for got in feed:
            assert torch.equal(got, want)
            got[:, 1] *= -1
            got.permute(0, 2, 3, 1)[0, 0, 0, 2] = 7
            assert torch.equal(got[:, 1], -want[:, 1])
            assert got[0, 2, 0, 0] == 7
            assert torch.equal(got[:, 0], want[:, 0])
