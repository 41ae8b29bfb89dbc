"""Loaders that people have, each served as it is and read exactly by two jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from frameworks.conftest import TIMEOUT_SECS
from frameworks.origins import SAMPLES, id_and_x, tf_dataset, tf_dataset_as_numpy
from support import roles
from support.child import say
from support.example_runs import Run, output_of
from support.processes import Report
from support.reading import cut

SHUFFLED = {
    "torch_dataloader": "torch.Tensor",
    "stateful_dataloader": "torch.Tensor",
    "datasets_map_style": "torch.Tensor",
    "datasets_streamed": "numpy.ndarray",
    "datasets_streamed_by_workers": "torch.Tensor",
    "webdataset": "torch.Tensor",
    "dali": "torch.Tensor",
    "tf_dataset": "numpy.ndarray",
}


def read(batch_size: int, epochs: int, format: Any = None) -> list[Report]:
    """Give each epoch's ids, sizes of batches, length by `len`, and types of arrays."""
    feed = feedline.attach("train", batch_size=batch_size, format=format)
    reports = []
    for _ in range(epochs):
        ids: list[int] = []
        sizes = []
        for batch in feed:
            index, x = id_and_x(batch)
            assert (x == index[:, None]).all(), "a sample's values are not those of its id"
            ids.extend(index.tolist())
            sizes.append(len(index))
            kinds = leaf_kinds(batch)
        reports.append({"ids": ids, "sizes": sizes, "length": len(feed), "kinds": sorted(kinds)})
    return reports


def say_what_was_read(**options: Any) -> None:
    say("read", epochs=read(**options))


def leaf_kinds(batch: Any) -> set[str]:
    if isinstance(batch, dict):
        return leaf_kinds(list(batch.values()))
    if isinstance(batch, list | tuple):
        return set().union(*map(leaf_kinds, batch))
    return {f"{type(batch).__module__}.{type(batch).__name__}"}


def read_by_two(start: Start, source: str, epochs: int = 2) -> list[Report]:
    """Serve a source to a process with NumPy alone and to this one, and give what this one got.

    Both get all of it, in batches of their own sizes and in the same order.
    """
    loader = f"frameworks.origins:{source}"
    server = start(roles.serve, loader=loader, wait_for=2, epochs=epochs)
    server.expect("ready")
    job = start(say_what_was_read, batch_size=7, epochs=epochs, format="numpy")
    here = read(batch_size=16, epochs=epochs)
    there: list[Report] = job.expect("read")["epochs"]
    server.expect("done")
    for size, reports in ((7, there), (16, here)):
        for report in reports:
            assert sorted(report["ids"]) == list(range(SAMPLES))
            assert report["sizes"] == cut(SAMPLES, size)
            assert report["length"] == len(report["sizes"])
    assert [report["ids"] for report in here] == [report["ids"] for report in there]
    assert there[0]["kinds"] == ["numpy.ndarray"]
    return here


@pytest.mark.parametrize("source", SHUFFLED)
def test_a_loader_that_shuffles(start: Start, source: str) -> None:
    first, second = read_by_two(start, source)
    assert first["ids"] != second["ids"], "an epoch was served twice"
    assert first["kinds"] == [SHUFFLED[source]]


def test_an_iterable_whose_iter_is_a_generator(start: Start) -> None:
    first, second = read_by_two(start, "generator_method")
    assert first["ids"] == second["ids"] == list(range(SAMPLES))


def test_a_generator_is_one_epoch(start: Start) -> None:
    read_by_two(start, "generator", epochs=1)


def serve_tensorflow() -> None:
    """Serve what else there is: not from pytest's own process, which goes on to fork."""
    import tensorflow as tf

    with feedline.Server(tf_dataset_as_numpy(), "train"):
        say("arrays", epochs=read(batch_size=7, epochs=2))
    with feedline.Server(tf_dataset("bfloat16"), "brains"):
        feed = feedline.attach("brains", batch_size=7, format="numpy")
        parts = [id_and_x(batch) for batch in feed]
    assert all((x.astype(np.float32) == index[:, None]).all() for index, x in parts)
    dtypes = sorted({x.dtype.name for _, x in parts})
    say("brains", dtypes=dtypes, ids=sorted(i for index, _ in parts for i in index.tolist()))
    words = tf.data.Dataset.from_tensor_slices({"text": ["a", "b"]}).batch(2)
    with feedline.Server(words, "words"):
        feedline.attach("words")


def test_tensorflow_as_arrays_as_bfloat16_and_as_strings(start: Start) -> None:
    job = start(serve_tensorflow)
    for epoch in job.expect("arrays")["epochs"]:
        assert sorted(epoch["ids"]) == list(range(SAMPLES))
        assert epoch["kinds"] == ["numpy.ndarray"]
    brains = job.expect("brains")
    assert brains["dtypes"] == ["bfloat16"]
    assert brains["ids"] == list(range(SAMPLES))
    job.expect_error(feedline.SchemaError, 'batch["text"]', "dtype is object")


@pytest.mark.parametrize(
    ("example", "samples"),
    [
        ("from_stateful_dataloader.py", 5000),
        ("from_hf_datasets.py", 500),
        ("from_webdataset.py", 1000),
        ("from_dali.py", 200),
        ("from_tfdata.py", 500),
    ],
)
def test_the_examples(run: Run, sharing: None, example: str, samples: int) -> None:
    output = output_of(run(example), within_secs=TIMEOUT_SECS)
    for epoch in range(2):
        line = f"epoch {epoch}: {samples} samples, {samples} different ones"
        assert line in output.splitlines()
