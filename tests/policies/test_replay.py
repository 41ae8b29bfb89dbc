"""`replay=True`: one epoch, loaded once, for everybody, as often as they like."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.loaders import Numbered, Sized, torch_loader
from support.processes import children_of_this_process
from support.reading import cut, expected, keys_of, read
from support.waiting import allow_to_go_wrong, eventually


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("loader", ["Numbered", "Sized"])
@pytest.mark.parametrize("batch_size", [7, 32, 650, None])
def test_every_pass_is_the_whole_epoch_and_the_loader_runs_once(
    batch_size: int | None, loader: str, in_files: bool, tmp_path: Path
) -> None:
    kinds: dict[str, type[Numbered]] = {"Numbered": Numbered, "Sized": Sized}
    source = kinds[loader](650, 30)
    folder = tmp_path if in_files else None
    with (
        feedline.Server(source, "val", replay=True, ring=100, history_dir=folder) as server,
        feedline.attach("val", batch_size=batch_size) as feed,
    ):
        for _ in range(5):
            assert read(feed) == expected(0, 650, batch_size or 30)
            assert len(feed) == len(cut(650, batch_size or 30))
        with feedline.attach("val", batch_size=16) as late:
            assert read(late) == expected(0, 650, 16)
        assert feed.epoch == 5
        assert source.epochs_begun == 1
        assert source.samples_yielded == 650
        assert server.stats()["samples"] == 650


def test_whole_batches_are_kept_too() -> None:
    source = Sized(650, 30)
    with (
        feedline.Server(source, "val", replay=True, ring=4, whole_batches=True),
        feedline.attach("val") as feed,
    ):
        for _ in range(3):
            assert read(feed) == expected(0, 650, 30)
        assert source.epochs_begun == 1


def test_a_generator_can_be_replayed() -> None:
    with (
        feedline.Server((batch for batch in Numbered(100, 10)), "val", replay=True),
        feedline.attach("val", batch_size=10) as feed,
    ):
        for _ in range(3):
            assert read(feed) == expected(0, 100, 10)


def test_breaking_off_begins_anew() -> None:
    with (
        feedline.Server(Numbered(650, 30), "val", replay=True, ring=100),
        feedline.attach("val", batch_size=10) as feed,
    ):
        for batch in feed:
            assert keys_of(batch) == list(range(10))
            break
        feed.set_epoch(7)
        assert read(feed) == expected(0, 650, 10)
        iterator = iter(feed)
        read(iterator, limit=40)
        del iterator
        assert read(feed) == expected(0, 650, 10)


def test_several_at_their_own_pace() -> None:
    with (
        feedline.Server(Numbered(650, 30), "val", replay=True, ring=100),
        ThreadPoolExecutor() as pool,
    ):
        feeds = [feedline.attach("val", batch_size=size) for size in (7, 16, 100)]

        def passes(feed: feedline.Feed, count: int) -> list[Any]:
            return [read(feed) for _ in range(count)]

        reading = [
            pool.submit(passes, feed, count) for feed, count in zip(feeds, (2, 9, 30), strict=True)
        ]
        for one, size in zip(reading, (7, 16, 100), strict=True):
            assert all(got == expected(0, 650, size) for got in one.result())
        for feed in feeds:
            feed.close()


def test_writing_in_place_spoils_no_later_pass() -> None:
    with (
        feedline.Server(Numbered(650, 30, width=9000), "val", replay=True),
        feedline.attach("val", batch_size=50) as writer,
        feedline.attach("val", batch_size=50) as reader,
    ):
        for _ in range(3):
            for batch in writer:
                batch[0][:] = 0
            assert read(reader) == expected(0, 650, 50)
        assert read(writer) == expected(0, 650, 50)


def test_so_many_passes_and_then_it_has_ended() -> None:
    with (
        feedline.Server(Numbered(650, 30), "val", replay=True, epochs=3) as server,
        feedline.attach("val", batch_size=50) as feed,
    ):
        for _ in range(3):
            assert read(feed) == expected(0, 650, 50)
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))
        feed.close()
        assert server.wait(60)
        assert server.stats()["state"] == "ended"


def test_an_empty_one() -> None:
    with feedline.Server([], "val", replay=True), feedline.attach("val") as feed:
        assert [list(feed) for _ in range(3)] == [[], [], []]


def test_no_loader_runs_any_more() -> None:
    loader = torch_loader(640, 64, num_workers=2, persistent_workers=True)
    with (
        feedline.Server(loader, "val", replay=True),
        feedline.attach("val", batch_size=64) as feed,
    ):
        assert read(feed) == expected(0, 640, 64)
        eventually(lambda: not children_of_this_process())
        assert read(feed) == expected(0, 640, 64)


def test_a_loader_that_fails_fails_here_too() -> None:
    is_attached = threading.Event()

    def broken() -> Any:
        yield from Numbered(100, 10)
        is_attached.wait()
        raise OSError("disk on fire")

    server = feedline.Server(broken(), "val", replay=True)
    server.start()
    with feedline.attach("val") as feed:
        is_attached.set()
        with pytest.raises(feedline.LoaderError, match="disk on fire"):
            list(feed)
    with pytest.raises(feedline.LoaderError, match="disk on fire"):
        server.wait()


def test_across_processes(start: Start) -> None:
    server = start(roles.serve, name="val", loader_args=[650, 30], replay=True)
    server.expect("ready")
    consumers = [
        start(roles.consume, name="val", epochs=4, batch_size=size) for size in (7, 650, 13)
    ]
    for consumer, size in zip(consumers, (7, 650, 13), strict=True):
        consumer.expect("attached")
        for _ in range(4):
            assert consumer.expect("epoch")["keys"] == list(range(650))
        assert consumer.expect("done"), size


def test_an_epoch_that_does_not_fit_says_so() -> None:
    server = feedline.Server(Sized(100, 10), "val", samples=10**12, replay=True)
    server.start()
    with pytest.raises(feedline.FeedMemoryError, match="whole epoch"):
        server.wait(60)


def test_a_long_step_in_the_last_pass_loses_nothing() -> None:
    with (
        feedline.Server(Numbered(105, 10), "val", replay=True, epochs=2, stall_timeout_secs=0.3),
        feedline.attach("val", batch_size=7) as feed,
    ):
        read(feed)
        iterator = iter(feed)
        keys = keys_of(next(iterator))
        allow_to_go_wrong(1)
        assert keys + read(iterator).keys == list(range(105))
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))
