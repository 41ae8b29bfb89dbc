"""A batch too large for the ring makes the ring grow, without a sample lost or repeated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import feedline
from conftest import Start
from support import roles
from support.loaders import EPOCH, Numbered, Sized
from support.processes import joined
from support.reading import expected, is_exact, keys_of, read
from support.waiting import eventually


def test_the_first_batch_asked_for_is_larger_than_the_ring() -> None:
    with feedline.Server(Numbered(2000, 10), "train", epochs=2, ring=60) as server:
        before = server.stats()
        assert before["ring_samples"] < 500
        feed = feedline.attach("train", batch_size=500)
        assert read(feed) == expected(0, 2000, 500)
        after = server.stats()
        assert after["ring_samples"] >= 500
        assert after["generation"] > before["generation"]
        assert read(feed) == expected(1, 2000, 500)
        feed.close()


def test_in_mid_epoch_while_another_consumer_reads_and_holds() -> None:
    with (
        feedline.Server(Numbered(4000, 10), "train", epochs=3, ring=60) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        small = feedline.attach("train", batch_size=7)
        iterator = iter(small)
        held = [next(iterator) for _ in range(4)]
        got = read(iterator, limit=200)
        assert got.exact
        held += [next(iterator) for _ in range(4)]
        assert server.stats()["ring_samples"] < 700

        large = feedline.attach("train", batch_size=700)
        reading = pool.submit(lambda: [read(large), read(large)])
        eventually(lambda: joined(server.stats()) == 2)
        rest = read(iterator)
        assert rest.keys == list(range(8 * 7 + 200 * 7, 4000))
        assert rest.exact
        assert read(small) == expected(1, 4000, 7)
        assert read(small) == expected(2, 4000, 7)
        assert reading.result() == [expected(1, 4000, 700), expected(2, 4000, 700)]
        # What was held through the growth is what it was.
        assert all(is_exact(batch) for batch in held)
        assert keys_of(held[0]) == list(range(7))
        small.close()
        large.close()


def test_several_growths_one_upon_another() -> None:
    with feedline.Server(Numbered(3000, 10), "train", ring=30) as server:
        generations = [server.stats()["generation"]]
        for batch_size in [7, 100, 400, 1500, 3000]:
            with feedline.attach("train", batch_size=batch_size) as feed:
                got = read(feed)
            assert got == expected(got.keys[0] // EPOCH, 3000, batch_size)
            generations.append(server.stats()["generation"])
        assert generations == sorted(generations)
        assert generations[-1] > generations[0]


def test_a_batch_larger_than_the_epoch_is_the_epoch() -> None:
    with (
        feedline.Server(Numbered(650, 10), "train", samples=650, epochs=2, ring=60),
        feedline.attach("train", batch_size=100_000) as feed,
    ):
        assert len(feed) == 1
        assert read(feed) == expected(0, 650, 100_000)
        assert read(feed) == expected(1, 650, 100_000)


def test_a_batch_beyond_all_memory_is_refused_with_its_size_and_nobody_else_notices() -> None:
    with feedline.Server(Numbered(650, 10), "train", epochs=1, ring=60):
        good = feedline.attach("train", batch_size=7)
        iterator = iter(good)
        first = next(iterator)
        with pytest.raises(feedline.BatchSizeError) as error:
            next(iter(feedline.attach("train", batch_size=10**15)))
        assert str(10**15) in str(error.value).replace(",", "").replace("_", "")
        assert read([first]).keys + read(iterator).keys == list(range(650))
        good.close()


def test_in_processes_that_join_one_after_the_other(start: Start) -> None:
    server = start(roles.serve, loader_args=[2000, 10], epochs=None, ring=40)
    server.expect("ready")
    wanted = [5, 64, 333, 1999]
    children = []
    for batch_size in wanted:
        child = start(roles.consume, batch_size=batch_size, epochs=3)
        child.expect("attached")
        children.append((batch_size, child))
    for batch_size, child in children:
        reports = [child.expect("epoch") for _ in range(3)]
        child.expect("done")
        epochs = [report["keys"][0] // EPOCH for report in reports]
        assert epochs == list(range(epochs[0], epochs[0] + 3))
        for epoch, report in zip(epochs, reports, strict=True):
            want = expected(epoch, 2000, batch_size)
            assert report["sizes"] == want.sizes
            assert report["keys"] == want.keys
            assert report["exact"]
    assert server.ask("stats")["stats"]["ring_samples"] >= 1999


def test_a_batch_larger_than_the_epoch_makes_the_ring_grow_once() -> None:
    with (
        feedline.Server(Sized(650, 50, width=1000), "train", samples=650) as server,
        feedline.attach("train", batch_size=10**6) as feed,
    ):
        sizes = set()
        for epoch in range(60):
            assert read(feed) == expected(epoch, 650, 650)
            sizes.add(server.stats()["ring_samples"])
        assert len(sizes) == 1
