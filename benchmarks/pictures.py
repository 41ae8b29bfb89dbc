"""JPEG files, made from a fixed seed, and the dataset that decodes them.

For the workloads *jpeg* and *loader*.

Plain Pillow: decode, random resized crop to 224x224 (torchvision's default scale and aspect),
random flip.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 16
_SIDE = 224
_HEIGHT, _WIDTH = 400, 500
# An epoch is longer than any run, so that no measurement has an epoch's end in it.
_EPOCH = 10_000_000


def paint(folder: Path, count: int, height: int = _HEIGHT) -> None:
    """Make `count` pictures, 500 wide: smooth shapes and some grain, as in photos."""
    noise = numpy.random.default_rng(7)
    for i in range(count):
        coarse = noise.integers(0, 256, (10, 12, 3), dtype=numpy.uint8)
        picture = Image.fromarray(coarse).resize((_WIDTH, height), Image.Resampling.BICUBIC)
        grain = noise.normal(0, 14, (height, _WIDTH, 3))
        pixels = numpy.clip(numpy.asarray(picture) + grain, 0, 255).astype(numpy.uint8)
        picture = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(0.7))
        picture.save(folder / f"{i:05}.jpg", quality=88)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Decodes and augments one picture at a time, as a training set does."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return _EPOCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index % len(self.files)]) as file:
            picture = file.convert("RGB")
        picture = picture.crop(_crop_box(*picture.size))
        picture = picture.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(picture))
        return pixels.permute(2, 0, 1).contiguous(), index % 1000


def _crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Pick a random part of 8 to 100 % of the area, of aspect 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


def loader(folder: Path, workers: int) -> DataLoader[tuple[torch.Tensor, int]]:
    return DataLoader(Pictures(folder), batch_size=BATCH_SIZE, num_workers=workers)
