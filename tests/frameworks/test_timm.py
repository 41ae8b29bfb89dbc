"""timm: its loader as what is shared, its prefetcher, mixup and loop as what reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import ImageDataset, Mixup, create_loader
from timm.data.loader import PrefetchLoader
from timm.optim import create_optimizer_v2
from timm.utils import AverageMeter
from torch import nn
from torch.utils.data import DataLoader, Dataset

import feedline
from frameworks.conftest import RunTwice

CPU = torch.device("cpu")
MEAN = (0.5, 0.4, 0.3)
STD = (0.1, 0.2, 0.25)
PICTURES = 20
SHADE = 10


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Pictures of one shade each, which no crop or flip changes: it is their id, times ten."""
    for number in range(PICTURES):
        folder = tmp_path / "pictures" / ("even", "odd")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 36), (number * SHADE,) * 3).save(folder / f"{number}.png")
    return tmp_path / "pictures"


def timm_loader(pictures: Path, batch: int) -> Any:
    """Make what timm's train script makes; `.loader` is the part that loads, as uint8."""
    return create_loader(
        ImageDataset(str(pictures)),
        input_size=(3, 32, 32),
        batch_size=batch,
        is_training=True,
        color_jitter=None,
        num_workers=0,
        mean=MEAN,
        std=STD,
        device=CPU,
    )


def ids_of(images: torch.Tensor) -> list[int]:
    """The ids of uint8 pictures, all of whose pixels must be right."""
    ids = images[:, 0, 0, 0] // SHADE
    assert torch.equal(images, (ids * SHADE)[:, None, None, None].expand_as(images))
    return ids.tolist()


def undo(images: torch.Tensor) -> torch.Tensor:
    """What the prefetcher has normalised, as it was."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))
    return (images * std + mean).round().to(torch.uint8)


def test_its_loader_as_the_source(pictures: Path) -> None:
    """Training drops the loader's last, smaller batch: 18 of 20 pictures are in an epoch."""
    loader = timm_loader(pictures, 6)
    with feedline.Server(loader.loader, "pictures"):
        feed = feedline.attach("pictures", batch_size=4)
        assert len(feed) == 5
        for _ in range(2):
            images, targets = zip(*feed, strict=True)
            assert [len(batch) for batch in images] == [4, 4, 4, 4, 2]
            ids = ids_of(torch.cat(images))
            assert len(set(ids)) == 18
            assert torch.cat(targets).tolist() == [number % 2 for number in ids]


def test_its_loop_as_the_consumer(pictures: Path) -> None:
    """The feed takes the place of the loader inside the prefetcher; the rest is timm's."""
    loader = timm_loader(pictures, 6)
    with feedline.Server(loader.loader, "pictures"):
        loader.loader = feedline.attach("pictures", batch_size=4, drop_last=True)
        model = timm.create_model("test_vit", num_classes=2, img_size=32, pretrained=False)
        optimizer = create_optimizer_v2(model, "sgd", lr=0.01)
        for epoch in range(2):
            assert len(train_one_epoch(epoch, model, loader, optimizer)) == 16


def train_one_epoch(epoch: int, model: nn.Module, loader: Any, optimizer: Any) -> set[int]:
    """One epoch with the conventions of timm's train script; gives the ids."""
    loader.sampler.set_epoch(epoch)
    if hasattr(loader.dataset, "set_epoch"):
        loader.dataset.set_epoch(epoch)
    if loader.mixup_enabled:
        loader.mixup_enabled = False
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=2)
    losses = AverageMeter()
    last = len(loader) - 1
    ids: set[int] = set()
    for number, (images, targets) in enumerate(loader):
        ids.update(ids_of(undo(images)))
        images, soft = mixup(images, targets)
        loss = nn.functional.cross_entropy(model(images), soft)
        loss.backward()
        if (number + 1) % 2 == 0 or number == last:
            optimizer.step()
            optimizer.zero_grad()
        losses.update(loss.item(), images.size(0))
    assert (number, losses.count) == (last, len(ids))
    return ids


class Floats(Dataset[tuple[torch.Tensor, int]]):
    """Float pictures of which the pages are worth sharing; they follow from their id."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return floats(index), index


def floats(index: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(index).random((3, 24, 24), dtype=np.float32))


def expected(ids: torch.Tensor) -> torch.Tensor:
    return torch.stack([floats(index) for index in ids.tolist()])


def test_its_prefetcher_writes_into_its_own_pages_only() -> None:
    """It normalises float batches in place, and mixup writes into them once more.

    Another job, on the same samples a moment later, must see none of it, while the ring comes
    round a few times; nor may the writer itself, in its next batches.
    """
    with feedline.Server(DataLoader(Floats(), 10, shuffle=True), "floats", ring=40):
        writer = PrefetchLoader(
            feedline.attach("floats", batch_size=8), mean=MEAN, std=STD, device=CPU
        )
        reader = feedline.attach("floats", batch_size=8)
        for _ in range(4):
            seen = list(pairs(writer, reader))
            assert sorted(seen) == list(range(100))
        assert writer.loader.stats()["mode"] == "copy", "it was not seen to write"


def pairs(writer: Any, reader: Any) -> Iterator[int]:
    mixup = Mixup(mixup_alpha=1.0, num_classes=100)
    # The prefetcher holds its batch back until it has the next one: both sides advance together.
    for (normal, targets), (plain, ids) in zip(writer, reader, strict=True):
        assert torch.equal(targets, ids)
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))
        assert torch.equal(normal, (expected(ids) - mean) / std)
        if len(ids) % 2 == 0:
            mixup(normal, targets)
        assert torch.equal(plain, expected(ids))
        yield from ids.tolist()


def test_the_example(run_twice: RunTwice) -> None:
    for output in run_twice("with_timm.py"):
        epochs = re.findall(r"epoch (\d): (\d+) pictures in (\d) batches", output)
        assert epochs == [("0", "192", "6"), ("1", "192", "6")], output
