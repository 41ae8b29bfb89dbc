"""tv_tensors over a feed: a transform in the job moves pictures, boxes and points together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feedline

torch = pytest.importorskip("torch")

N, H, W = 8, 6, 10


def batch(width: int = W) -> dict[str, Any]:
    from torchvision import tv_tensors

    boxes = torch.tensor([[1.0, 2.0, 4.0, 5.0]]).expand(N, 1, 4).contiguous()
    wrapped = tv_tensors.BoundingBoxes._wrap(
        boxes, format="XYXY", canvas_size=(H, width), clamping_mode="hard", check_dims=False
    )
    image = torch.arange(N * 3 * H * W, dtype=torch.uint8).reshape(N, 3, H, W)
    return {
        "image": tv_tensors.Image(image.contiguous(memory_format=torch.channels_last)),
        "mask": tv_tensors.Mask(torch.arange(N * H * W).reshape(N, 1, H, W)),
        "video": tv_tensors.Video(torch.zeros(N, 2, 3, H, W)),
        "boxes": wrapped,
        "points": tv_tensors.KeyPoints(torch.ones(N, 5, 2), canvas_size=(H, width)),
        "label": torch.arange(N),
    }


def test_what_comes_is_what_was_yielded() -> None:
    want = batch()
    with (
        feedline.Server([want], "train", epochs=1),
        feedline.attach("train", batch_size=3) as feed,
    ):
        for number, got in enumerate(feed):
            part = slice(number * 3, number * 3 + 3)
            for name, tensor in got.items():
                assert type(tensor) is type(want[name])
                assert vars(tensor) == vars(want[name])
                assert torch.equal(tensor, want[name][part])
            assert got["image"].is_contiguous(memory_format=torch.channels_last)


def test_a_flip_in_the_job_moves_the_boxes_with_the_picture() -> None:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    # A box for each picture: torchvision transforms no stacks of several.
    one = torch.tensor([1.0, 2.0, 4.0, 5.0]).repeat(N, 1)
    boxes = tv_tensors.BoundingBoxes(one, format="XYXY", canvas_size=(H, W))
    flip = v2.RandomHorizontalFlip(p=1.0)
    with (
        feedline.Server([batch() | {"boxes": boxes}], "train", epochs=1),
        feedline.attach("train", batch_size=3) as feed,
    ):
        for got in feed:
            flipped = flip(got)
            assert torch.equal(flipped["image"], got["image"].flip(-1))
            assert flipped["boxes"][0].tolist() == [W - 4.0, 2.0, W - 1.0, 5.0]
            assert flipped["points"][0, 0].tolist() == [W - 2.0, 1.0]


def test_a_canvas_that_changes_is_named() -> None:
    server = feedline.Server([batch(), batch(width=W + 1)], "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError, match="canvas_size") as error:
        list(feedline.attach("train", batch_size=N))
    assert 'batch["boxes"]' in str(error.value)
    server.stop()


@pytest.mark.parametrize("mode", ["cow", "copy"])
def test_jax_takes_channels_last(mode: Any) -> None:
    want = batch()["image"].as_subclass(torch.Tensor)
    with (
        feedline.Server([want], "train", epochs=1),
        feedline.attach("train", batch_size=3, format="jax", mode=mode) as feed,
    ):
        got = [np.asarray(one) for one in feed]
    assert np.array_equal(np.concatenate(got), want.numpy())
