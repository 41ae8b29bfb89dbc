"""Loaders of other people's making, over the same samples: `x` is the id, several times.

Each function makes one, for a server; what it needs is imported there, so that no process has more
than it uses. The order is another one in each epoch, except where a loader can't shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLES = 100
BATCH = 8
WIDTH = 6

Sample = dict[str, Any]


class Ids:
    """A map-style dataset."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Sample:
        return {"id": index, "x": np.full(WIDTH, index, np.float32)}


def torch_dataloader() -> Any:
    from torch.utils.data import DataLoader

    ids: Any = Ids()
    return DataLoader(ids, BATCH, shuffle=True, num_workers=2)


def stateful_dataloader() -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    ids: Any = Ids()
    return StatefulDataLoader(ids, BATCH, shuffle=True, num_workers=2)


def _dataset() -> Any:
    import datasets

    rows = [Ids()[index] for index in range(SAMPLES)]
    return datasets.Dataset.from_list([{"id": row["id"], "x": row["x"].tolist()} for row in rows])


def datasets_map_style() -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(_dataset().with_format("torch"), BATCH, shuffle=True)


class Streamed:
    """A streaming dataset of HF's, batched by itself; it shuffles by the epoch that it is told."""

    def __init__(self) -> None:
        stream = _dataset().to_iterable_dataset(num_shards=4)
        self.stream = stream.shuffle(seed=3, buffer_size=20).with_format("numpy")

    def set_epoch(self, epoch: int) -> None:
        self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[Sample]:
        yield from self.stream.iter(batch_size=BATCH)


def datasets_streamed() -> Any:
    return Streamed()


def datasets_streamed_by_workers() -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(Streamed().stream.with_format("torch"), BATCH, num_workers=2)


def webdataset() -> Any:
    """Read shards that are made in the current folder."""
    import webdataset as wds

    for shard in range(4):
        with wds.TarWriter(f"{shard}.tar") as tar:
            for index in range(shard * SAMPLES // 4, (shard + 1) * SAMPLES // 4):
                x = np.full(WIDTH, index, np.float32)
                tar.write({"__key__": f"{index:06d}", "x.npy": x, "id.cls": index})
    samples = wds.WebDataset("{0..3}.tar", shardshuffle=4, seed=1).shuffle(20).decode()
    batches = samples.to_tuple("x.npy", "id.cls").batched(BATCH)
    return wds.WebLoader(batches, batch_size=None, num_workers=2)


def dali() -> Any:
    """Decode pictures that are made in the current folder; their grey is the id."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
    from PIL import Image

    files = [f"{index}.png" for index in range(SAMPLES)]
    for index, file in enumerate(files):
        Image.new("RGB", (WIDTH, WIDTH), (index,) * 3).save(file)

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def pictures() -> Any:
        # Padded, or the next epoch would begin with what was missing in this one's last batch.
        encoded, label = fn.readers.file(
            files=[str(Path(file).absolute()) for file in files],
            labels=list(range(SAMPLES)),
            random_shuffle=True,
            seed=3,
            pad_last_batch=True,
            name="reader",
        )
        return fn.decoders.image(encoded, device="cpu"), fn.squeeze(label, axes=[0])

    return DALIGenericIterator(
        pictures(),
        ["x", "id"],
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )


def tf_dataset(x_dtype: str = "float32") -> Any:
    import tensorflow as tf

    def sample(index: Any) -> Sample:
        return {"id": index, "x": tf.cast(tf.fill([WIDTH], index), x_dtype)}

    return tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES, seed=2).map(sample).batch(BATCH)


class AsNumpy:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.dataset.as_numpy_iterator())


def tf_dataset_as_numpy() -> Any:
    return AsNumpy(tf_dataset())


class Counted:
    """Whose `__iter__` is a generator function: plain Python, and no length."""

    def __iter__(self) -> Iterator[Sample]:
        for start in range(0, SAMPLES, BATCH):
            index = np.arange(start, min(start + BATCH, SAMPLES))
            yield {"id": index, "x": index[:, None].repeat(WIDTH, 1).astype(np.float32)}


def generator_method() -> Any:
    return Counted()


def generator() -> Any:
    return iter(Counted())


def id_and_x(batch: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Give a batch's parts, whatever the loader wraps them in, with a sample's values in a row."""
    if isinstance(batch, list) and len(batch) == 1:
        batch = batch[0]
    index, x = (batch["id"], batch["x"]) if isinstance(batch, dict) else (batch[1], batch[0])
    return np.asarray(index), np.asarray(x).reshape(len(x), -1)
