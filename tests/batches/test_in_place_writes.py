"""Scenario 9: a consumer that writes into its batches spoils nobody's bytes, nor its own next ones.

A page once written to is private to the writer and would show old bytes when the ring comes round,
or where a neighbouring batch shares it. So widths here don't divide the page, and batches end in
the middle of one.
"""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import say
from support.loaders import EPOCH, Numbered, content
from support.reading import expected, is_exact, keys_of, read

SAMPLES = 2000
EPOCHS = 2


def digest(x: Any) -> str:
    return hashlib.sha256(np.asarray(x).tobytes()).hexdigest()


def reference(epoch: int, samples: int, batch_size: int, width: int) -> list[str]:
    """Make the hashes of an epoch's batches from the keys alone."""
    first = epoch * EPOCH
    return [
        digest(content(np.arange(first + at, first + min(at + batch_size, samples)), width))
        for at in range(0, samples, batch_size)
    ]


def write_everywhere(x: Any, number: int) -> None:
    x[:] = 255 - np.asarray(x)


def write_the_first_byte(x: Any, number: int) -> None:
    x[0, 0] ^= 0xFF


def write_the_last_byte(x: Any, number: int) -> None:
    x[-1, -1] ^= 0xFF


def write_now_and_then(x: Any, number: int) -> None:
    if number % 5 == 3:
        x[len(x) // 2 :] = 7


def write_a_few_then_stop(x: Any, number: int) -> None:
    if number < 3:
        x[:] = 0


WRITERS = {
    writer.__name__: writer
    for writer in (
        write_everywhere,
        write_the_first_byte,
        write_the_last_byte,
        write_now_and_then,
        write_a_few_then_stop,
    )
}


def write_and_hash(
    name: str, batch_size: int, writer: str, epochs: int = EPOCHS, **options: Any
) -> list[list[str]]:
    """Hash every batch as it comes, then write into it, at once and when the next one is there."""
    feed = feedline.attach(name, batch_size=batch_size, **options)
    hashes: list[list[str]] = []
    for _ in range(epochs):
        one: list[str] = []
        previous = None
        for number, (x, y) in enumerate(feed):
            one.append(digest(x))
            assert keys_of((x, y))[0] % EPOCH == number * batch_size
            WRITERS[writer](x, number)
            if previous is not None:
                WRITERS[writer](previous, number - 1)
            # The keys stand in a ring of their own.
            y[:] = -1
            previous = x
        hashes.append(one)
    feed.close()
    return hashes


def check_writers(
    writer: str, *, width: int, batch_size: int, samples: int = SAMPLES, ring: int = 64
) -> None:
    """Two that write and one that only reads, over many turns of the ring: all hashes are right."""
    loader = Numbered(samples, 16, width=width)
    with (
        feedline.Server(loader, "train", epochs=EPOCHS, wait_for=3, ring=ring),
        ThreadPoolExecutor(3) as pool,
    ):
        writing = pool.submit(write_and_hash, "train", batch_size, writer)
        other = pool.submit(write_and_hash, "train", batch_size + 2, "write_the_last_byte")
        pure = feedline.attach("train", batch_size=11)
        reading = pool.submit(lambda: [read(pure) for _ in range(EPOCHS)])
        for epoch in range(EPOCHS):
            assert writing.result()[epoch] == reference(epoch, samples, batch_size, width)
            assert other.result()[epoch] == reference(epoch, samples, batch_size + 2, width)
            assert reading.result()[epoch] == expected(epoch, samples, 11)
        pure.close()


@pytest.mark.parametrize("writer", sorted(WRITERS))
@pytest.mark.parametrize(
    ("width", "batch_size"), [(3, 13), (777, 7), (777, 13), (4096, 7), (4097, 13), (5000, 7)]
)
def test_hashes_stay_equal_over_many_turns_of_the_ring(
    writer: str, width: int, batch_size: int
) -> None:
    check_writers(writer, width=width, batch_size=batch_size)


@pytest.mark.parametrize("writer", sorted(WRITERS))
def test_hashes_stay_equal_in_a_ring_of_huge_pages(writer: str) -> None:
    """Lanes of many megabytes, where the kernel may use pages of two."""
    check_writers(writer, width=150_529, batch_size=13, samples=300, ring=64)


def write_in_a_process(name: str, batch_size: int, writer: str, epochs: int) -> None:
    say("done", hashes=write_and_hash(name, batch_size, writer, epochs))


def check_in_a_process(name: str, batch_size: int, epochs: int) -> None:
    feed = feedline.attach(name, batch_size=batch_size)
    say("done", hashes=[[digest(x) for x, _ in feed] for _ in range(epochs)])


def test_a_writer_and_a_checker_in_processes_of_their_own(start: Start) -> None:
    width, epochs, samples = 5003, 3, 3000
    loader = Numbered(samples, 20, width=width)
    with feedline.Server(loader, "train", epochs=epochs, wait_for=3, ring=80) as server:
        writer = start(
            write_in_a_process,
            name="train",
            batch_size=13,
            writer="write_everywhere",
            epochs=epochs,
        )
        edges = start(
            write_in_a_process,
            name="train",
            batch_size=7,
            writer="write_the_last_byte",
            epochs=epochs,
        )
        checker = start(check_in_a_process, name="train", batch_size=7, epochs=epochs)
        for child, batch_size in ((writer, 13), (edges, 7), (checker, 7)):
            want = [reference(epoch, samples, batch_size, width) for epoch in range(epochs)]
            assert child.expect("done")["hashes"] == want
        assert server.stats()["samples"] == epochs * samples


def test_the_written_batch_is_the_writers_own() -> None:
    with feedline.Server(Numbered(100, 10), "train", epochs=1, ring=400):
        writing, reading = (feedline.attach("train", batch_size=10) for _ in range(2))
        left, right = iter(writing), iter(reading)
        mine, theirs = next(left), next(right)
        mine[0][:] = 1
        assert (np.asarray(mine[0]) == 1).all()
        assert is_exact(theirs)
        theirs[0][:] = 2
        assert (np.asarray(mine[0]) == 1).all()
        writing.close()
        reading.close()


def test_torch_operations_in_place() -> None:
    torch = pytest.importorskip("torch")
    batches = [torch.arange(i * 700, (i + 1) * 700).reshape(7, 100).float() for i in range(300)]
    with (
        feedline.Server(batches, "train", epochs=1, ring=40),
        feedline.attach("train", batch_size=13) as feed,
    ):
        begin = 0
        for x in feed:
            want = torch.arange(begin, begin + x.numel()).reshape(-1, 100).float()
            assert torch.equal(x, want)
            x.div_(255).sub_(0.5)
            assert torch.allclose(x, want / 255 - 0.5)
            begin += x.numel()
        assert begin == 300 * 700


def test_a_consumer_seen_to_write_gets_copies_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO),
        feedline.Server(Numbered(SAMPLES, 16, width=5000), "train", epochs=1, ring=64),
        feedline.attach("train", batch_size=13) as feed,
    ):
        assert feed.stats()["mode"] == "cow"
        for x, _ in feed:
            x[:] = 0
        assert feed.stats()["mode"] == "copy"
    told = [r for r in caplog.records if r.name.startswith("feedline") and "cop" in r.getMessage()]
    assert len(told) == 1
    assert "train" in told[0].getMessage()


def test_a_consumer_that_only_reads_keeps_its_views() -> None:
    with (
        feedline.Server(Numbered(SAMPLES, 16, width=5000), "train", epochs=2, ring=64),
        feedline.attach("train", batch_size=13) as feed,
    ):
        for epoch in range(2):
            assert read(feed) == expected(epoch, SAMPLES, 13)
        stats = feed.stats()
        assert stats["mode"] == "cow"
        assert stats["remaps"] == 0
