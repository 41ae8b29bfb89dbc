"""A server that restarts: consumers with `reconnect_secs` get every sample exactly once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import say
from support.loaders import ByEpoch, Numbered, Resumable, torch_loader
from support.reading import Reading, expected, is_exact, keys_of, read
from support.waiting import allow_to_go_wrong

SAMPLES = 2000
PAUSE_SECS = 0.002


def follow_epochs(name: str, epochs: int, batch_size: int, **options: Any) -> None:
    feed = feedline.attach(name, batch_size=batch_size, reconnect_secs=20, **options)
    for _ in range(epochs):
        got = Reading([], [], True)
        for batch in feed:
            got.sizes.append(len(batch[1]))
            got.keys += keys_of(batch)
            got.exact = got.exact and is_exact(batch)
            if len(got.sizes) % 20 == 1:
                say("going", keys=len(got.keys))
        say("epoch", **got.as_json())
    say("done")


def _epochs(consumer: Any, epochs: int, consumers: Sequence[Any]) -> list[dict[str, Any]]:
    """Give what one reports of its epochs. If it is silent: it may wait for the others."""
    reports: list[dict[str, Any]] = []
    while len(reports) < epochs:
        try:
            report = consumer.report()
        except AssertionError as error:
            others = [(one.said(), one.stderr) for one in consumers if one is not consumer]
            raise AssertionError(f"{error}\nthe others: {others}") from None
        assert report["event"] in ("going", "epoch"), report
        if report["event"] == "epoch":
            reports.append(report)
    return reports


def _await_progress(consumer: Any) -> None:
    assert consumer.expect("going")


@pytest.mark.parametrize("kills", [1, 3])
def test_with_a_state_file_everybody_gets_every_sample_exactly_once(
    start: Start, tmp_path: Path, kills: int
) -> None:
    options: dict[str, Any] = {
        "loader": "Resumable",
        "loader_args": [SAMPLES, 10],
        "loader_options": {"pause_secs": PAUSE_SECS},
        "samples": SAMPLES,
        "ring": 200,
        "wait_for": 3,
        "state_file": str(tmp_path / "state"),
    }
    server = start(roles.serve, **options)
    server.expect("ready")
    sizes = (7, 16, 100)
    consumers = [start(follow_epochs, name="train", epochs=3, batch_size=size) for size in sizes]
    for _ in range(kills):
        _await_progress(consumers[0])
        _await_progress(consumers[0])
        server.kill()
        server = start(roles.serve, **{**options, "wait_for": 1})
        server.expect("ready")
    for consumer, size in zip(consumers, sizes, strict=True):
        for epoch, report in enumerate(_epochs(consumer, 3, consumers)):
            want = expected(epoch, SAMPLES, size)
            assert report["keys"] == want.keys
            assert report["sizes"] == want.sizes
            assert report["exact"]


def test_without_one_it_is_exact_if_epochs_depend_on_their_number_alone(start: Start) -> None:
    options: dict[str, Any] = {
        "loader": "ByEpoch",
        "loader_args": [SAMPLES, 10],
        "samples": SAMPLES,
    }
    server = start(roles.serve, **options, ring=200, wait_for=2)
    server.expect("ready")
    sizes = (7, 16)
    consumers = [start(follow_epochs, name="train", epochs=4, batch_size=size) for size in sizes]
    for _ in range(2):
        _await_progress(consumers[0])
        _await_progress(consumers[1])
        server.kill()
        server = start(roles.serve, **options, ring=200)
        server.expect("ready")
    for consumer, size in zip(consumers, sizes, strict=True):
        for epoch, report in enumerate(_epochs(consumer, 4, consumers)):
            assert report["keys"] == expected(epoch, SAMPLES, size).keys
            assert report["exact"]


def test_a_server_that_is_stopped_and_started_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the longer its loader took to answer, the more seldom it is asked for its state.
    monkeypatch.setattr("feedline._state._SHARE", math.inf)
    state_file = tmp_path / "state"

    def server() -> feedline.Server:
        loader = Resumable(SAMPLES, 10)
        return feedline.Server(
            loader, "train", samples=SAMPLES, ring=100, state_file=state_file
        ).start()

    first = server()
    feed = feedline.attach("train", batch_size=10, reconnect_secs=10)
    iterator = iter(feed)
    keys = read(iterator, limit=130).keys
    first.stop()
    second = server()
    rest = read(iterator)
    assert keys + rest.keys == list(range(SAMPLES))
    assert rest.exact
    # It went on in the middle: of the 130 that were read, at most a ring's ten and the one that
    # was just being added were made again.
    assert 0 < second.stats()["batches"] <= 200 - 130 + 11
    second.stop()
    feed.close()


def lose_the_server(reconnect_secs: float) -> tuple[feedline.Feed, Iterator[Any]]:
    """A consumer in the middle of an epoch whose server has ended."""
    server = feedline.Server(Numbered(1000, 10), "train", ring=50).start()
    feed = feedline.attach("train", batch_size=10, reconnect_secs=reconnect_secs)
    iterator = iter(feed)
    next(iterator)
    server.stop()
    return feed, iterator


def test_nobody_comes_back() -> None:
    feed, iterator = lose_the_server(reconnect_secs=0.5)
    begun = time.monotonic()
    with pytest.raises(feedline.ServerLostError, match=r"none came back within 0\.5 s"):
        read(iterator)
    assert time.monotonic() - begun > 0.4
    feed.close()


def test_it_comes_back_with_other_batches() -> None:
    feed, iterator = lose_the_server(reconnect_secs=10)
    with (
        feedline.Server(Numbered(1000, 10, width=99), "train", ring=50),
        pytest.raises(feedline.SchemaError, match="other batches"),
    ):
        read(iterator)
    feed.close()


def test_between_two_epochs() -> None:
    server = feedline.Server(ByEpoch(100, 10), "train", samples=100).start()
    feed = feedline.attach("train", batch_size=10, reconnect_secs=10)
    for epoch in range(3):
        assert read(feed) == expected(epoch, 100, 10)
    server.stop()
    with feedline.Server(ByEpoch(100, 10), "train", samples=100):
        for epoch in range(3, 6):
            assert read(feed) == expected(epoch, 100, 10)
    feed.close()


def test_a_replayed_epoch() -> None:
    server = feedline.Server(Numbered(100, 10), "val", replay=True).start()
    feed = feedline.attach("val", batch_size=10, reconnect_secs=10)
    read(feed)
    iterator = iter(feed)
    keys = read(iterator, limit=3).keys
    server.stop()
    with feedline.Server(Numbered(100, 10), "val", replay=True):
        assert keys + read(iterator).keys == list(range(100))
        assert read(feed) == expected(0, 100, 10)
        assert feed.epoch == 3
    feed.close()


def test_the_file_is_gone_when_all_epochs_are_done(tmp_path: Path) -> None:
    state_file = tmp_path / "state"
    loader = Resumable(300, 10)
    with (
        feedline.Server(
            loader, "train", samples=300, epochs=2, ring=40, state_file=state_file
        ) as server,
        feedline.attach("train", batch_size=10) as feed,
    ):
        first = iter(feed)
        read(first, limit=20)
        assert state_file.exists()
        read(first)
        assert read(feed) == expected(1, 300, 10)
        feed.close()
        assert server.wait(60)
    assert not list(tmp_path.iterdir())


def test_a_stateful_dataloader(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def server() -> feedline.Server:
        dataset = torch_loader(640, 16).dataset
        loader = stateful.StatefulDataLoader(dataset, batch_size=16, num_workers=1)
        return feedline.Server(loader, "train", ring=64, state_file=tmp_path / "state").start()

    first = server()
    feed = feedline.attach("train", batch_size=10, reconnect_secs=20)
    iterator = iter(feed)
    keys = read(iterator, limit=40).keys
    first.stop()
    second = server()
    assert keys + read(iterator).keys == list(range(640))
    assert read(feed).keys == list(range(640))
    second.stop()
    feed.close()


def test_a_shuffled_epoch_that_was_begun_is_the_same_again(tmp_path: Path) -> None:
    """One consumer ends an epoch, the other is in the next one, whose order is its own."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    torch = pytest.importorskip("torch")

    def server(**options: Any) -> feedline.Server:
        options |= {"ring": 60, "state_file": tmp_path / "state", "stall_timeout_secs": 3}
        loader = stateful.StatefulDataLoader(
            torch_loader(100, 10).dataset,
            batch_size=10,
            shuffle=True,
            generator=torch.Generator().manual_seed(3),
        )
        return feedline.Server(loader, "train", **options).start()

    first = server(wait_for=2)
    slow, fast = (feedline.attach("train", batch_size=10, reconnect_secs=20) for _ in range(2))
    with ThreadPoolExecutor() as pool:
        behind = iter(slow)
        reading = pool.submit(read, behind, limit=9)
        assert sorted(read(fast).keys) == list(range(100))
        ahead = iter(fast)
        keys = read(ahead, limit=2).keys
        begun = reading.result().keys
        first.stop()
        second = server()
        rest = pool.submit(read, behind)
        keys += read(ahead).keys
        assert sorted(begun + rest.result().keys) == list(range(100))
        assert sorted(keys) == list(range(100))
        second.stop()
    slow.close()
    fast.close()


def test_a_file_that_cannot_be_written_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    loader = Resumable(2000, 10, pause_secs=0.001)
    with (
        feedline.Server(loader, "train", samples=2000, ring=100, state_file=folder / "state"),
        feedline.attach("train", batch_size=10) as feed,
    ):
        iterator = iter(feed)
        keys = read(iterator, limit=30).keys
        folder.rename(tmp_path / "elsewhere")
        assert keys + read(iterator).keys == list(range(2000))
    assert sum("cannot be written" in record.getMessage() for record in caplog.records) == 1


def test_a_loader_that_cannot_resume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(feedline.FeedValueError, match="StatefulDataLoader"):
        feedline.Server(Numbered(10, 5), "train", state_file=tmp_path / "state")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    state_file = tmp_path / "state"
    state_file.write_bytes(b"nonsense")
    server = feedline.Server(Resumable(10, 5), "train", state_file=state_file)
    with pytest.raises(feedline.FeedValueError, match="delete it"):
        server.start()
    with pytest.raises(feedline.FeedValueError, match="not a folder"):
        feedline.Server(Resumable(10, 5), "train", state_file=tmp_path / "nowhere" / "state")


def test_the_first_one_back_waits_for_one_that_is_an_epoch_behind() -> None:
    """Without a state file: the old server's page says which epoch the slowest was in."""

    def server(**options: Any) -> feedline.Server:
        loader = ByEpoch(100, 10)
        return feedline.Server(loader, "train", samples=100, ring=40, history=0, **options).start()

    first = server(wait_for=2)
    fast = feedline.attach("train", batch_size=10, reconnect_secs=20)
    slow = feedline.attach("train", batch_size=10, reconnect_secs=20)

    def take(feed: feedline.Feed, epochs: int, batches: int) -> Any:
        for epoch in range(epochs):
            assert read(feed) == expected(epoch, 100, 10)
        iterator = iter(feed)
        read(iterator, limit=batches)
        return iterator

    with ThreadPoolExecutor() as pool:
        ahead, behind = (
            one.result() for one in (pool.submit(take, fast, 3, 1), pool.submit(take, slow, 2, 9))
        )
        first.stop()
        second = server()
        back = pool.submit(read, ahead)
        # The other one is in a training step that takes its time.
        allow_to_go_wrong(1)
        assert read(behind).keys == expected(2, 100, 10, start=90).keys
        assert read(slow) == expected(3, 100, 10)
        assert back.result() == expected(3, 100, 10, start=10)
        second.stop()
    fast.close()
    slow.close()
