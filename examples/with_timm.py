"""timm's own loader, shared: one job decodes, crops and flips, each job normalises and mixes.

python examples/with_timm.py & python examples/with_timm.py & wait     # two jobs
"""

from collections.abc import Callable

import timm
import torch
from PIL import Image
from timm.data import Mixup, create_loader
from timm.optim import create_optimizer_v2
from torch import nn
from torch.utils.data import Dataset

import feedline


class Shades(Dataset[tuple[torch.Tensor, int]]):
    """Dark and bright pictures, in place of a folder of photographs."""

    transform: Callable[[Image.Image], torch.Tensor]

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        light = index % 2 * 128 + index % 100
        return self.transform(Image.new("RGB", (40, 36), (light,) * 3)), index % 2


def loader() -> timm.data.loader.PrefetchLoader:
    return create_loader(
        Shades(),
        input_size=(3, 32, 32),
        batch_size=40,
        is_training=True,
        num_workers=0,
        device=torch.device("cpu"),
    )


if __name__ == "__main__":
    train = loader()
    # Inside its prefetcher, so that the pictures are shared as bytes: a quarter of the floats.
    train.loader = feedline.share(lambda: loader().loader, "shades", batch_size=32, drop_last=True)
    model = timm.create_model("test_vit", num_classes=2, img_size=32)
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3)
    mixup = Mixup(mixup_alpha=0.2, num_classes=2)
    for epoch in range(2):
        train.sampler.set_epoch(epoch)
        pictures = 0
        for images, targets in train:
            images, soft = mixup(images, targets)
            loss = nn.functional.cross_entropy(model(images), soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pictures += len(images)
        print(f"epoch {epoch}: {pictures} pictures in {len(train)} batches")
