"""The demo's data: JPEGs, a dataset over them, and the loader that both halves use."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
WIDTH, HEIGHT = 500, 375  # ImageNet's average, about
CROP = 224
SEED = 7

Sample = tuple[torch.Tensor, int, int]


def make_images(folder: Path, count: int) -> Iterator[int]:
    """Write `count` JPEGs, the same ones each time, and yield how many are there after each."""
    rng = random.Random(SEED)
    tints = [tuple(rng.randrange(256) for _ in range(3)) for _ in range(CLASSES)]
    for number in range(count):
        label = number % CLASSES
        # Coarse noise, blown up, costs a decoder about what a photograph does.
        noise = Image.frombytes("RGB", (100, 75), rng.randbytes(100 * 75 * 3))
        texture = noise.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        picture = Image.blend(texture, Image.new("RGB", texture.size, tints[label]), 0.25)
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", quality=90)
        (folder / f"{label}-{number:06}.jpg").write_bytes(encoded.getvalue())
        yield number + 1


class JpegFolder(Dataset[Sample]):
    """Decode, crop at random, resize, flip: what an image classifier's input goes through.

    A sample is (image, label, number); by the number a job checks that it saw each exactly once.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        scale, left, top, flip = torch.rand(4).tolist()
        with Image.open(path) as file:
            picture = file.convert("RGB")
        side = (0.5 + 0.5 * scale) * min(picture.size)
        x, y = left * (picture.width - side), top * (picture.height - side)
        box = (x, y, x + side, y + side)
        crop = picture.resize((CROP, CROP), Image.Resampling.BILINEAR, box)
        if flip < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.frombuffer(bytearray(crop.tobytes()), dtype=torch.uint8)
        image = pixels.view(CROP, CROP, 3).permute(2, 0, 1).contiguous()
        return image, int(path.name.split("-")[0]), index


def make_loader(folder: Path, batch_size: int) -> DataLoader[Sample]:
    """Make the loader: each job's own in the first half, the feed's in the second."""
    return DataLoader(
        JpegFolder(folder),
        batch_size=batch_size,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
