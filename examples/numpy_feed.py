"""A feed without torch: a generator of NumPy arrays, and two processes that read it.

python examples/numpy_feed.py
"""

import multiprocessing
from collections.abc import Iterator

import numpy as np

import feedline


class Walks:
    """Any iterable will do; each `iter()` is one epoch."""

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        rng = np.random.default_rng(0)
        for start in range(0, 1000, 100):
            steps = rng.standard_normal((100, 50), dtype=np.float32)
            yield {"walk": steps.cumsum(axis=1), "number": np.arange(start, start + 100)}


def read(batch_size: int) -> None:
    with feedline.attach("walks", batch_size=batch_size) as feed:
        seen = np.concatenate([batch["number"].copy() for batch in feed])
    assert (seen == np.arange(1000)).all()
    # In one piece: both may print at the same moment.
    print(f"batch size {batch_size}: {len(seen)} samples, each exactly once, in order\n", end="")


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    with feedline.Server(Walks(), "walks", epochs=1, wait_for=2) as server:
        readers = [spawn.Process(target=read, args=[size]) for size in (32, 300)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert all(reader.exitcode == 0 for reader in readers)
