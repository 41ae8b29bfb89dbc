"""A consumer that comes back with its `state_dict()` goes on at its next sample, or fails."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import EPOCH, ByEpoch, Gated, Numbered, Sized
from support.processes import joined
from support.reading import expected, keys_of, read
from support.waiting import eventually


def place(state: dict[str, Any]) -> tuple[int, int]:
    return state["epoch"], state["sample"]


def test_the_state_is_where_the_next_sample_is() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", ring=40),
        feedline.attach("train", batch_size=7) as feed,
    ):
        order = feed.state_dict()["order"]
        assert feed.state_dict() == {"feed": "train", "epoch": 0, "sample": 0, "order": order}
        iterator = iter(feed)
        for taken in range(1, 4):
            next(iterator)
            assert place(feed.state_dict()) == (0, 7 * taken)
        read(iterator)
        assert place(feed.state_dict()) == (1, 0)
        next(iter(feed))
        assert place(feed.state_dict()) == (1, 7)
        assert json.loads(json.dumps(feed.state_dict())) == feed.state_dict()


@pytest.mark.parametrize("taken", [1, 5, 13, 14])
def test_one_goes_on_at_the_next_sample(taken: int) -> None:
    options: dict[str, Any] = {"samples": 100, "ring": 40, "history": 1.0}
    with (
        feedline.Server(Sized(100, 10), "train", wait_for=2, **options),
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=7) as other,
        feedline.attach("train", batch_size=7) as feed,
    ):
        reading = pool.submit(read, other)
        got = read(iter(feed), limit=taken)
        state = feed.state_dict()
        feed.close()
        assert reading.result().exact
        with feedline.attach("train", batch_size=16) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            rest = read(again)
            assert got.keys + rest.keys == list(range(100))
            assert rest.exact
            # From there on as if nothing had happened.
            assert again.state_dict()["epoch"] == 1
            reading = pool.submit(read, other)
            assert read(again) == expected(1, 100, 16)
            assert reading.result() == expected(1, 100, 7)


def test_an_epochs_first_sample_is_a_place() -> None:
    """As torchdata's tests have it: a state from before the first batch, then the whole epoch."""
    state: Any = None
    with feedline.Server(ByEpoch(100, 10), "train", samples=100, ring=40, history=1.0) as server:
        for epoch in range(2):
            with feedline.attach("train", batch_size=10) as feed:
                if state is not None:
                    feed.load_state_dict(state)
                    assert read(feed) == expected(epoch - 1, 100, 10)
                iterator = iter(feed)
                state = feed.state_dict()
                assert place(state) == (epoch, 0)
                assert read(iterator) == expected(epoch, 100, 10)
            eventually(lambda: not server.stats()["consumers"])
        with feedline.attach("train", batch_size=10) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert read(again) == expected(1, 100, 10)


def test_a_state_replaces_the_one_before() -> None:
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, ring=40, history=1.0),
        feedline.attach("train", batch_size=10) as feed,
    ):
        start = feed.state_dict()
        read(iter(feed), limit=3)
        feed.load_state_dict({"feed": "train", "epoch": 0, "sample": 70})
        feed.load_state_dict(start)
        assert read(feed) == expected(0, 100, 10)


@pytest.mark.parametrize("join", ["auto", "now"])
def test_who_has_read_nothing_begins_like_a_newcomer_if_the_first_epoch_is_gone(
    join: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, ring=40, history=0) as server,
        feedline.attach("train", batch_size=10) as other,
        feedline.attach("train", batch_size=10, join=join) as feed,
    ):
        state = feed.state_dict()
        for epoch in range(3):
            assert read(other) == expected(epoch, 100, 10)
        ahead = iter(other)
        read(ahead, limit=6)
        # The ring is full, and the epoch's start is gone.
        eventually(lambda: server.stats()["samples"] == 400)
        feed.load_state_dict(state)
        iterator = iter(feed)
        if join == "now":
            other.close()
            assert next(iterator) is not None
            assert feed.epoch >= 3
        else:
            with ThreadPoolExecutor() as pool:
                first = pool.submit(next, iterator)
                eventually(lambda: joined(server.stats()) == 2)
                read(ahead)
                assert keys_of(first.result())[0] == 4 * EPOCH
        assert any("epoch 0, which is gone" in record.getMessage() for record in caplog.records)


def test_ranks_that_have_read_nothing_begin_together() -> None:
    """The first one finds that epoch 0 is gone; the second gets what the first did."""
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, ring=40, history=0),
        feedline.attach("train", batch_size=10) as other,
        feedline.attach("train", batch_size=5, shard=(0, 2)) as first,
        feedline.attach("train", batch_size=5, shard=(1, 2)) as second,
        ThreadPoolExecutor() as pool,
    ):
        for epoch in range(3):
            assert read(other) == expected(epoch, 100, 10)
        other.close()
        for feed in (first, second):
            feed.load_state_dict({"feed": "train", "epoch": 0, "sample": 0})
        reading = [pool.submit(read, feed) for feed in (first, second)]
        keys = sorted(key for one in reading for key in one.result().keys)
        assert len(keys) == 100
        assert len({key // EPOCH for key in keys}) == 1
        assert keys[0] >= 2 * EPOCH


def test_a_feed_may_be_renamed() -> None:
    """The name in the state is only for people who read it."""
    with (
        feedline.Server(Numbered(100, 10), "imagenet-v2", history=1.0),
        feedline.attach("imagenet-v2", batch_size=10) as feed,
    ):
        for state in ({"feed": "imagenet", "epoch": 0, "sample": 30}, {"epoch": 0, "sample": 30}):
            feed.load_state_dict(state)
            assert keys_of(next(iter(feed))) == list(range(30, 40))


def test_in_an_epoch_that_has_ended_meanwhile() -> None:
    with (
        feedline.Server(Sized(100, 10), "train", ring=40, history="1MB") as server,
        feedline.attach("train", batch_size=10) as other,
        feedline.attach("train", batch_size=10) as feed,
    ):
        read(iter(feed), limit=8)
        assert read(other) == expected(0, 100, 10)
        ahead = iter(other)
        read(ahead, limit=2)
        # So far ahead that nobody waits for a consumer that comes back.
        eventually(lambda: server.stats()["samples"] >= 160)
        assert place(feed.state_dict()) == (0, 80)
        feed.load_state_dict(feed.state_dict())
        assert read(feed).keys == list(range(80, 100))
        read(ahead)
        assert read(feed) == expected(1, 100, 10)


def test_samples_that_are_gone_are_named() -> None:
    with (
        feedline.Server(Sized(1000, 10), "train", samples=1000, ring=60, history=0),
        feedline.attach("train", batch_size=10) as other,
        feedline.attach("train", batch_size=10) as feed,
    ):
        feed.load_state_dict({"feed": "train", "epoch": 0, "sample": 20})
        read(iter(other), limit=50)
        with pytest.raises(
            feedline.SamplesGoneError, match=r"samples 20 to \d+ of epoch 0 are gone"
        ) as error:
            next(iter(feed))
        assert isinstance(error.value, LookupError)
        assert "history=" in str(error.value)
        # It may join anew, like anybody.
        again = read(feed)
        assert again.exact
        assert again.sizes == [10] * 100


def test_an_epoch_that_is_gone() -> None:
    with (
        feedline.Server(Sized(100, 10), "train", samples=100, ring=40, history=0),
        feedline.attach("train", batch_size=10) as other,
        feedline.attach("train", batch_size=10) as feed,
    ):
        for _ in range(3):
            read(other)
        feed.load_state_dict({"feed": "train", "epoch": 0, "sample": 20})
        with pytest.raises(feedline.SamplesGoneError, match="epoch 0, from sample 20 on, is gone"):
            next(iter(feed))


def test_a_later_epoch_of_a_new_server() -> None:
    """The job's checkpoint is of epoch 5, and the server was started anew with it."""
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, epochs=8, ring=40) as server,
        feedline.attach("train", batch_size=10) as feed,
    ):
        feed.load_state_dict({"feed": "train", "epoch": 5, "sample": 30})
        assert read(feed) == expected(5, 100, 10, start=30)
        assert read(feed) == expected(6, 100, 10)
        assert read(feed) == expected(7, 100, 10)
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))
        assert server.stats()["samples"] <= 40 + 300, "it did not run through the epochs before"


def test_an_epoch_far_ahead() -> None:
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100),
        feedline.attach("train", batch_size=10) as feed,
    ):
        for epoch in range(3):
            assert read(feed) == expected(epoch, 100, 10)
        feed.load_state_dict({"feed": "train", "epoch": 700, "sample": 99})
        assert read(feed) == expected(700, 100, 1, start=99)
        assert read(feed) == expected(701, 100, 10)


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        {"feed": "train", "epoch": 1},
        {"feed": "train", "epoch": -1, "sample": 2},
        {"feed": "train", "epoch": "x", "sample": 2},
    ],
)
def test_what_is_no_state(state: Any) -> None:
    with (
        feedline.Server(Numbered(100, 10), "train"),
        feedline.attach("train", batch_size=7) as feed,
    ):
        with pytest.raises(feedline.FeedValueError):
            feed.load_state_dict(state)
        assert read(feed) == expected(0, 100, 7)


def take_some_and_crash(name: str, batches: int, state: dict[str, Any] | None = None) -> None:
    feed = feedline.attach(name, batch_size=16)
    if state is not None:
        feed.load_state_dict(state)
    iterator = iter(feed)
    got = read(iterator, limit=batches)
    say("taken", state=feed.state_dict(), **got.as_json())
    hear()


def test_a_killed_job_comes_back_and_misses_nothing(start: Start) -> None:
    server = start(
        roles.serve, loader="Sized", loader_args=[1000, 10], samples=1000, ring=100, history=1.0
    )
    server.expect("ready")
    state: Any = None
    keys: list[int] = []
    for round_ in range(4):
        job = start(take_some_and_crash, name="train", batches=11 + round_, state=state)
        report = job.expect("taken")
        assert report["exact"]
        state, keys = report["state"], keys + report["keys"]
        job.kill()
    assert keys == list(range(len(keys)))
    with feedline.attach("train", batch_size=16) as feed:
        feed.load_state_dict(state)
        assert keys + read(feed).keys == list(range(1000))


def test_one_that_was_stopped_for_too_long_goes_on_if_the_log_has_its_samples() -> None:
    with (
        feedline.Server(
            Sized(1000, 10), "train", samples=1000, ring=100, history=1.0, stall_timeout_secs=0.4
        ) as server,
        feedline.attach("train", batch_size=10) as feed,
        feedline.attach("train", batch_size=10) as other,
    ):
        standing = iter(feed)
        first = next(standing)
        assert read(other) == expected(0, 1000, 10)
        eventually(lambda: not all(one["joined"] for one in server.stats()["consumers"]))
        rest = read(standing)
        assert keys_of(first) + rest.keys == list(range(1000))
        assert rest.exact


def test_a_replayed_epoch_is_resumed_too() -> None:
    with (
        feedline.Server(Numbered(650, 30), "val", replay=True),
        feedline.attach("val", batch_size=10) as feed,
    ):
        read(feed)
        iterator = iter(feed)
        read(iterator, limit=20)
        state = feed.state_dict()
        assert place(state) == (1, 200)
        with feedline.attach("val", batch_size=9) as again:
            again.load_state_dict(state)
            assert read(again).keys == list(range(200, 650))
            assert read(again) == expected(0, 650, 9)
            assert place(again.state_dict()) == (3, 0)


def test_a_place_after_the_last_epoch_is_the_end() -> None:
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, epochs=3),
        feedline.attach("train", batch_size=10) as feed,
    ):
        feed.load_state_dict({"feed": "train", "epoch": 3, "sample": 0})
        with pytest.raises(feedline.FeedEndedError):
            next(iter(feed))


def test_one_that_waits_for_a_later_epoch_drags_nobody_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        feedline.Server(ByEpoch(100, 10), "train", samples=100, ring=40) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=10) as reading,
        feedline.attach("train", batch_size=10) as waiting,
        feedline.attach("train", batch_size=10) as newcomer,
    ):
        iterator = iter(reading)
        next(iterator)
        waiting.load_state_dict({"feed": "train", "epoch": 6, "sample": 20})
        resumed = pool.submit(read, waiting)
        eventually(lambda: any("waits for epoch 6" in r.getMessage() for r in caplog.records))
        joining = pool.submit(read, newcomer)
        eventually(lambda: joined(server.stats()) == 3)
        read(iterator)
        for epoch in range(1, 6):
            assert read(reading) == expected(epoch, 100, 10)
        assert joining.result() in (expected(0, 100, 10), expected(1, 100, 10))
        assert read(reading) == expected(6, 100, 10)
        assert resumed.result() == expected(6, 100, 10, start=20)


def resume_in_the_middle(sample: int) -> None:
    feed = feedline.attach("train", batch_size=10)
    feed.load_state_dict({"feed": "train", "epoch": 0, "sample": sample})
    say("waiting")
    say("read", **read(feed).as_json())


def test_one_that_is_stopped_before_its_first_batch_goes_on_there_all_the_same(
    start: Start,
) -> None:
    loader = Gated(1000, 10, at=500)
    options: dict[str, Any] = {"samples": 1000, "ring": 100, "history": 1.0}
    with (
        feedline.Server(loader, "train", stall_timeout_secs=0.4, **options) as server,
        ThreadPoolExecutor() as pool,
        feedline.attach("train", batch_size=10) as other,
    ):
        reading = pool.submit(read, other)
        child = start(resume_in_the_middle, sample=500)
        child.expect("waiting")
        eventually(lambda: joined(server.stats()) == 2)
        child.stop()
        loader.gate.set()
        assert reading.result() == expected(0, 1000, 10)
        assert joined(server.stats()) == 1
        child.resume()
        assert child.expect("read")["keys"] == list(range(500, 1000))
