"""Pictures decoded by DALI on the CPU, once for all training jobs; start it as often as you like.

python examples/from_dali.py pictures/     # without a folder, pictures are made up in ./pictures
"""

import sys
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from PIL import Image

import feedline

folder = Path(sys.argv[1] if sys.argv[1:] else "pictures").absolute()


@pipeline_def(batch_size=32, num_threads=2, device_id=None)
def pictures() -> Any:
    files = sorted(map(str, folder.glob("*.png")))
    # pad_last_batch: or the next epoch would begin with what was missing in this one's last batch.
    encoded, labels = fn.readers.file(
        files=files,
        labels=list(range(len(files))),
        random_shuffle=True,
        pad_last_batch=True,
        name="reader",
    )
    images = fn.resize(fn.decoders.image(encoded, device="cpu"), size=[16, 16])
    return images, fn.squeeze(labels, axes=[0])


def make_loader() -> Any:
    """Called once, by the server."""
    if not folder.exists():
        make_pictures()
    return DALIGenericIterator(
        pictures(),
        ["image", "label"],
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )


def make_pictures() -> None:
    folder.mkdir()
    for number in range(200):
        Image.new("RGB", (40, 30), (number,) * 3).save(folder / f"{number:03d}.png")


if __name__ == "__main__":
    feed = feedline.share(make_loader, "dali-example", batch_size=48)
    for epoch in range(2):
        labels = [label for [batch] in feed for label in batch["label"].tolist()]
        print(f"epoch {epoch}: {len(labels)} samples, {len(set(labels))} different ones")
