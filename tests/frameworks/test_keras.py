"""Keras 3 on torch and on JAX: fit, evaluate and predict straight from a feed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from frameworks.conftest import TIMEOUT_SECS
from support import roles
from support.child import say
from support.example_runs import Run, output_of
from support.loaders import EPOCH, content
from support.reading import cut

SAMPLES = 100
WIDTH = 4


def train(backend: str, batch_size: int) -> None:
    os.environ["KERAS_BACKEND"] = backend
    import keras

    assert keras.backend.backend() == backend
    taken: list[list[int]] = []

    def note_keys(batch: Any) -> Any:
        taken.append(batch[1].tolist())
        return batch[0].float() / 255, batch[1]

    feed = feedline.attach("train", batch_size=batch_size, format="torch", transform=note_keys)

    def keys_as_loss(keys: Any, outputs: Any) -> Any:
        """Average, over an epoch, to the mean of the keys that the model was shown."""
        return keras.ops.cast(keys, "float32") + 0 * keras.ops.sum(outputs, axis=-1)

    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss=keys_as_loss)
    history = model.fit(feed, epochs=2, verbose=0)
    say("fit", taken=taken, loss=history.history["loss"], length=len(feed))
    taken.clear()
    say("evaluate", loss=model.evaluate(feed, verbose=0), taken=taken)
    taken.clear()
    pixels = keras.Input((WIDTH,))
    echo = keras.Model(pixels, keras.ops.sum(pixels, axis=-1))
    outputs = echo.predict(feed, verbose=0)
    say("predict", taken=taken, outputs=outputs.ravel().tolist())


def keys(epoch: int) -> list[int]:
    return [epoch * EPOCH + index for index in range(SAMPLES)]


def flat(batches: list[list[int]]) -> list[int]:
    return [key for batch in batches for key in batch]


@pytest.mark.parametrize(("backend", "batch_size"), [("torch", 16), ("jax", 7)])
def test_fit_evaluate_predict(start: Start, backend: str, batch_size: int) -> None:
    server = start(
        roles.serve,
        loader="Sized",
        loader_args=[SAMPLES, 8],
        loader_options={"width": WIDTH},
        samples=SAMPLES,
    )
    server.expect("ready")
    job = start(train, backend=backend, batch_size=batch_size)
    sizes = cut(SAMPLES, batch_size)
    fit = job.expect("fit")
    assert fit["length"] == len(sizes)
    # Keras reads one batch to build the model, and then begins anew.
    assert fit["taken"][0] == keys(0)[:batch_size]
    assert [len(batch) for batch in fit["taken"][1:]] == 2 * sizes
    assert flat(fit["taken"][1:]) == keys(0) + keys(1)
    assert fit["loss"] == pytest.approx([np.mean(keys(0)), np.mean(keys(1))], abs=1)
    evaluated = job.expect("evaluate")
    assert flat(evaluated["taken"]) == keys(2)
    assert evaluated["loss"] == pytest.approx(np.mean(keys(2)), abs=1)
    predicted = job.expect("predict")
    assert flat(predicted["taken"]) == keys(3)
    shown = content(np.array(keys(3)), WIDTH).sum(1) / 255
    assert predicted["outputs"] == pytest.approx(shown, rel=1e-4)


def test_the_example(run: Run, sharing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {}
    for backend in ("torch", "jax"):
        monkeypatch.setenv("KERAS_BACKEND", backend)
        jobs[backend] = run("with_keras.py")
    for backend, job in jobs.items():
        output = output_of(job, within_secs=TIMEOUT_SECS)
        assert f"keras on {backend}: 3 epochs of 1000 samples" in output
