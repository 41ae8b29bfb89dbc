"""Scenario 3: every consumer gets every sample exactly once per epoch, in order, byte for byte."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

import feedline
from conftest import Start
from support import roles
from support.loaders import Numbered, numbered_batch
from support.reading import cut, expected, is_exact, read

SAMPLES = 650
LOADER_BATCH = 48
EPOCHS = 3


def test_650_samples_at_every_batch_size_in_ten_processes(start: Start) -> None:
    sizes: list[int | None] = [16, 32, 7, 650, None]
    wanted = [(size, drop_last) for size in sizes for drop_last in (False, True)]
    server = start(
        roles.serve,
        loader_args=[SAMPLES, LOADER_BATCH],
        samples=SAMPLES,
        epochs=EPOCHS,
        wait_for=len(wanted),
    )
    server.expect("ready")
    consumers = [
        start(roles.consume, batch_size=size, drop_last=drop_last, epochs=EPOCHS)
        for size, drop_last in wanted
    ]
    for (size, drop_last), consumer in zip(wanted, consumers, strict=True):
        assert consumer.expect("attached")["server_pid"] == server.pid
        for epoch in range(EPOCHS):
            got = consumer.expect("epoch")
            want = expected(epoch, SAMPLES, size or LOADER_BATCH, drop_last=drop_last)
            assert got["len"] == len(got["sizes"]), (size, drop_last)
            assert got["sizes"] == want.sizes, (size, drop_last)
            assert got["keys"] == want.keys, (size, drop_last)
            assert got["exact"], (size, drop_last)
        consumer.expect("done")
    # One pass over the loader served all ten.
    stats = server.expect("done")["stats"]
    assert stats["samples"] == SAMPLES * EPOCHS
    assert stats["state"] == "ended"


def test_a_torch_dataloader_with_workers_feeds_a_process_and_this_one(start: Start) -> None:
    torch = pytest.importorskip("torch")
    server = start(
        roles.serve,
        loader="torch_loader",
        loader_args=[SAMPLES, LOADER_BATCH],
        loader_options={"num_workers": 2},
        epochs=2,
        wait_for=2,
    )
    other = start(roles.consume, batch_size=100, epochs=2)
    with feedline.attach("train", batch_size=32) as feed:
        for _ in range(2):
            assert len(feed) == 21
            batches = list(feed)
            assert all(isinstance(leaf, torch.Tensor) for batch in batches for leaf in batch)
            assert read(batches) == expected(0, SAMPLES, 32)
    other.expect("attached")
    for _ in range(2):
        got = other.expect("epoch")
        want = expected(0, SAMPLES, 100)
        assert (got["len"], got["sizes"]) == (7, want.sizes)
        assert (got["keys"], got["exact"]) == (want.keys, True)
    other.expect("done")
    server.expect("ready")
    server.expect("done")


@pytest.mark.parametrize("loader_batch", [1, 7, 64, 650, 1000])
@pytest.mark.parametrize("batch_size", [1, 13, 64, 649, 650, 651])
def test_neither_batch_size_need_divide_the_other(loader_batch: int, batch_size: int) -> None:
    loader = Numbered(SAMPLES, loader_batch)
    with feedline.Server(loader, "train", epochs=2):
        feed = feedline.attach("train", batch_size=batch_size)
        for epoch in range(2):
            assert read(feed) == expected(epoch, SAMPLES, batch_size)
        feed.close()
    assert loader.epochs_begun == 2


def test_the_loaders_own_batches_tail_included() -> None:
    with (
        feedline.Server(Numbered(100, 16), "train", epochs=1),
        feedline.attach("train") as feed,
    ):
        assert read(feed).sizes == cut(100, 16)


def test_a_loader_whose_batches_vary_in_size() -> None:
    steps = [5, 1, 17, 3, 3, 40, 2]
    ends = list(itertools.accumulate(steps))
    batches = [
        numbered_batch(0, end - step, end, 37) for step, end in zip(steps, ends, strict=True)
    ]
    with feedline.Server(batches, "train", epochs=1, wait_for=2), ThreadPoolExecutor(2) as pool:
        own = pool.submit(read, feedline.attach("train"))
        cutting = pool.submit(read, feedline.attach("train", batch_size=9))
        assert own.result().sizes == steps
        assert cutting.result() == expected(0, sum(steps), 9)


def test_a_feed_is_a_loader_for_another_feed() -> None:
    with (
        feedline.Server(Numbered(200, 10), "raw", epochs=2, ring=60),
        feedline.attach("raw") as raw,
        feedline.Server(raw, "train", epochs=2, ring=60),
        feedline.attach("train", batch_size=7) as feed,
    ):
        for epoch in range(2):
            assert read(feed) == expected(epoch, 200, 7)


def test_keys_of_epochs_differ() -> None:
    """The yardstick itself: a wrong byte, or a sample of another epoch, shows."""
    assert not set(expected(0, 10, 5).keys) & set(expected(1, 10, 5).keys)
    batch = numbered_batch(0, 0, 10, 37)
    assert is_exact(batch)
    batch[0][9, 36] ^= 1
    assert not is_exact(batch)
