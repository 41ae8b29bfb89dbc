"""Serve a folder of JPEGs, one sub-folder per class, to every training job on this machine.

python examples/serve_imagefolder.py photos/    # until Ctrl-C; without a folder, made-up pictures
python examples/train.py 64                     # in other terminals, as often as you like
"""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import feedline


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[index]) as file:
            pixels = bytearray(file.convert("RGB").resize((64, 64)).tobytes())
        image = torch.frombuffer(pixels, dtype=torch.uint8).view(64, 64, 3).permute(2, 0, 1)
        return image, self.classes.index(self.files[index].parent.name)


def make_pictures(folder: Path) -> None:
    for number in range(400):
        tone = ("dark", "bright")[number % 2]
        (folder / tone).mkdir(exist_ok=True)
        light = number % 2 * 128 + number % 128
        Image.new("RGB", (160, 120), (light,) * 3).save(folder / tone / f"{number}.jpg")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_up:
        if not sys.argv[1:]:
            make_pictures(Path(made_up))
        dataset = ImageFolder(Path(*sys.argv[1:] or [made_up]))
        loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)
        feedline.serve(loader, "images")
