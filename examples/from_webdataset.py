"""WebDataset shards, decoded once for all training jobs; start it as often as you like.

python examples/from_webdataset.py shards/     # without a folder, shards are made up in ./shards
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds

import feedline

folder = Path(sys.argv[1] if sys.argv[1:] else "shards").absolute()


def make_loader() -> Any:
    """Called once, by the server."""
    if not folder.exists():
        make_shards()
    shards = sorted(map(str, folder.glob("*.tar")))
    samples = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(100).decode()
    batches = samples.to_tuple("image.npy", "label.cls").batched(32)
    return wds.WebLoader(batches, batch_size=None, num_workers=2)


def make_shards() -> None:
    folder.mkdir()
    for shard in range(4):
        with wds.TarWriter(str(folder / f"{shard}.tar")) as tar:
            for number in range(shard * 250, shard * 250 + 250):
                image = np.full((3, 8, 8), number % 256, np.uint8)
                tar.write({"__key__": f"{number:06d}", "image.npy": image, "label.cls": number})


if __name__ == "__main__":
    feed = feedline.share(make_loader, "webdataset-example", batch_size=48)
    for epoch in range(2):
        labels = [label for _, batch in feed for label in batch.tolist()]
        print(f"epoch {epoch}: {len(labels)} samples, {len(set(labels))} different ones")
