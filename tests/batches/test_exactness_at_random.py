"""Random shapes of work against the yardstick; the seed is in the test's name and in its output."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import feedline
from support.loaders import Numbered
from support.reading import Reading, expected, is_exact, keys_of, read

CASES = 40
BASE_SEED = int(os.environ.get("FEEDLINE_TEST_SEED", "20240229"))


@dataclass
class Consumer:
    batch_size: int | None
    drop_last: bool
    mode: str
    habit: str


@dataclass
class Case:
    samples: int
    loader_batch: int
    width: int
    epochs: int
    ring: int | None
    consumers: list[Consumer]


def draw(rng: random.Random) -> Case:
    loader_batch = rng.randint(1, 40)
    return Case(
        samples=rng.choice([0, 1, rng.randint(2, 60), rng.randint(60, 900)]),
        loader_batch=loader_batch,
        width=rng.choice([1, 3, rng.randint(4, 300), 4096, rng.randint(4000, 5000)]),
        epochs=rng.randint(1, 3),
        # Two of the loader's batches are the least that a ring must hold.
        ring=rng.choice([None, rng.randint(2 * loader_batch, 6 * loader_batch)]),
        consumers=[
            Consumer(
                batch_size=rng.choice([None, 1, rng.randint(2, 60), rng.randint(60, 1000)]),
                drop_last=rng.random() < 0.3,
                mode=rng.choice(["cow", "cow", "cow", "readonly", "copy"]),
                habit=rng.choice(["read", "keep", "keep some", "write"]),
            )
            for _ in range(rng.randint(1, 4))
        ],
    )


def consume(consumer: Consumer, epochs: int, rng: random.Random) -> list[Reading]:
    """Read all epochs in its own way: keep batches, or write into them after checking them."""
    readings = []
    options: dict[str, Any] = {"mode": consumer.mode}
    with feedline.attach(
        "train", batch_size=consumer.batch_size, drop_last=consumer.drop_last, **options
    ) as feed:
        for _ in range(epochs):
            if consumer.habit == "keep":
                readings.append(read(list(feed)))
                continue
            got, kept = Reading([], [], True), []
            for batch in feed:
                keys = keys_of(batch)
                got.sizes.append(len(keys))
                got.keys += keys
                got.exact = got.exact and is_exact(batch)
                if consumer.habit == "write" and consumer.mode != "readonly":
                    np.asarray(batch[0])[rng.randrange(len(keys)), :] = rng.randrange(256)
                elif consumer.habit == "keep some" and rng.random() < 0.3:
                    kept.append(batch)
            got.exact = got.exact and all(is_exact(batch) for batch in kept)
            readings.append(got)
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))
    return readings


@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES))
def test_every_consumer_gets_every_sample_exactly_once(seed: int) -> None:
    rng = random.Random(seed)
    case = draw(rng)
    print(f"seed {seed}: {case}")
    loader = Numbered(case.samples, case.loader_batch, width=case.width)
    with (
        feedline.Server(
            loader,
            "train",
            epochs=case.epochs,
            wait_for=len(case.consumers),
            ring=case.ring,
            samples=case.samples,
        ) as server,
        ThreadPoolExecutor(len(case.consumers)) as pool,
    ):
        results = [
            pool.submit(consume, consumer, case.epochs, random.Random(rng.random()))
            for consumer in case.consumers
        ]
        for consumer, result in zip(case.consumers, results, strict=True):
            # A tail is what is smaller than the loader's first batch: of one batch nobody can tell.
            size = consumer.batch_size or max(1, min(case.loader_batch, case.samples))
            assert result.result() == [
                expected(epoch, case.samples, size, drop_last=consumer.drop_last)
                for epoch in range(case.epochs)
            ], consumer
        server.wait()
        assert server.stats()["samples"] == case.samples * case.epochs
    assert loader.epochs_begun == case.epochs
