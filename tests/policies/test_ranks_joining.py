"""Ranks that come late, rest, stand still or die: all read the same epochs, or get an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import EPOCH
from support.processes import Child, Report, joined
from support.ranks import shares, steps_of
from support.reading import read
from support.waiting import eventually

SAMPLES = 600
WORLD = 2


def read_on_command(rank: int, world: int = WORLD, **options: Any) -> None:
    """Read on command: `N` batches and break off, an `epoch` to its end, or `take` one."""
    feed = feedline.attach("train", batch_size=5, shard=(rank, world), **options)
    say("attached")
    iterator: Iterator[Any] | None = None
    while word := hear():
        if word == "take":
            iterator = iterator or iter(feed)
            say(word, **read(iterator, limit=1).as_json())
        elif word == "epoch":
            say(word, **read(iterator or feed).as_json())
            iterator = None
        else:
            say(word, **read(feed, limit=int(word)).as_json())


def rank(start: Start, number: int, **options: Any) -> Child:
    child = start(read_on_command, rank=number, **options)
    child.expect("attached")
    return child


def whole_epoch(epoch: int, number: int, *, start: int = 0) -> Report:
    steps = steps_of(SAMPLES - start, 5, WORLD)
    return shares(epoch, steps, WORLD, start=start)[number].as_json()


def got(report: Report) -> Report:
    return {name: report[name] for name in ("sizes", "keys", "exact")}


def epoch_of(report: Report) -> int:
    return int(report["keys"][0]) // EPOCH


def serve(start: Start, **options: Any) -> Child:
    options = {"ring": 100, "history": 0.0, **options}
    server = start(roles.serve, loader_args=[SAMPLES, 10], **options)
    server.expect("ready")
    return server


def stats(server: Child) -> Report:
    report: Report = server.ask("stats")["stats"]
    return report


def waited_secs(server: Child, pid: int) -> float:
    consumers = stats(server)["consumers"]
    return float(next(one["waited_secs"] for one in consumers if one["pid"] == pid))


def push_the_feed_on(start: Start, server: Child, epoch: int) -> Child:
    """A job that sees everything, and reads until the feed is in this epoch or a later one."""
    other = start(roles.follow, batch_size=32)
    other.expect("attached")
    eventually(lambda: stats(server)["epoch"] >= epoch)
    return other


def begin_one_after_the_other(start: Start, server: Child, one: int, two: int) -> list[Child]:
    """Two ranks that read an epoch, beside another job. The second one begins later."""
    early = rank(start, one)
    early.tell("epoch")
    # It has read as far as the ring goes, and somewhere in an epoch it waits for the other rank.
    eventually(lambda: joined(stats(server)) == 2)
    late = rank(start, two)
    late.tell("epoch")
    return [early, late]


def expect_the_same_epoch(first: Child, second: Child) -> int:
    """Both ranks have read their parts of one epoch, whole."""
    mine, theirs = first.expect("epoch"), second.expect("epoch")
    epoch = epoch_of(mine)
    assert got(mine) == whole_epoch(epoch, 0)
    assert got(theirs) == whole_epoch(epoch, 1)
    return epoch


def test_a_rank_that_comes_later_begins_where_the_first_did(start: Start) -> None:
    server = serve(start)
    other = push_the_feed_on(start, server, epoch=1)
    first, second = begin_one_after_the_other(start, server, 0, 1)
    epoch = expect_the_same_epoch(first, second)
    for later in (epoch + 1, epoch + 2):
        first.tell("epoch")
        second.tell("epoch")
        assert got(first.expect("epoch")) == whole_epoch(later, 0)
        assert got(second.expect("epoch")) == whole_epoch(later, 1)
    other.kill()


def test_a_rank_may_read_a_small_epoch_before_another_comes(start: Start) -> None:
    serve(start, ring=2 * SAMPLES, epochs=2)
    first = rank(start, 0)
    assert got(first.ask("epoch")) == whole_epoch(0, 0)
    assert got(first.ask("epoch")) == whole_epoch(1, 0)
    # All ranks that are here have read everything: the feed still waits for the other rank.
    second = rank(start, 1)
    assert got(second.ask("epoch")) == whole_epoch(0, 1)
    assert got(second.ask("epoch")) == whole_epoch(1, 1)


def test_breaking_off_and_iterating_again_stays_together(start: Start) -> None:
    serve(start)
    first, second = rank(start, 0), rank(start, 1)
    # As frameworks do: the first batch, a sanity check, then the epoch.
    assert first.ask("1")["keys"] == [0, 1, 2, 3, 4]
    assert first.ask("2")["keys"] == [*range(5), *range(10, 15)]
    first.tell("epoch")
    assert second.ask("1")["keys"] == [5, 6, 7, 8, 9]
    assert second.ask("2")["keys"] == [*range(5, 10), *range(15, 20)]
    second.tell("epoch")
    mine, theirs = first.expect("epoch"), second.expect("epoch")
    assert epoch_of(mine) == epoch_of(theirs)
    assert got(mine) == whole_epoch(epoch_of(mine), 0)
    assert got(theirs) == whole_epoch(epoch_of(mine), 1)


def test_a_probe_of_its_own_stays_together(start: Start) -> None:
    """Each rank attaches twice: once to inspect a batch, once to train."""
    serve(start)
    first, second = start(probe_and_read, rank=0), start(probe_and_read, rank=1)
    probes = [first.expect("probe")["keys"], second.expect("probe")["keys"]]
    assert [key % EPOCH for key in probes[0] + probes[1]] == list(range(10))
    mine, theirs = first.expect("epoch"), second.expect("epoch")
    assert got(mine) == whole_epoch(epoch_of(mine), 0)
    assert got(theirs) == whole_epoch(epoch_of(mine), 1)


def probe_and_read(rank: int) -> None:
    with feedline.attach("train", batch_size=5, shard=(rank, WORLD)) as feed:
        say("probe", **read(feed, limit=1).as_json())
    feed = feedline.attach("train", batch_size=5, shard=(rank, WORLD))
    say("epoch", **read(feed).as_json())
    hear()


def test_a_rank_that_rests_is_not_left_behind(start: Start) -> None:
    server = serve(start, wait_for=3)
    other = start(roles.follow, batch_size=32)
    first, second = rank(start, 0), rank(start, 1)
    first.tell("epoch")
    second.tell("epoch")
    assert got(first.expect("epoch")) == whole_epoch(0, 0)
    assert got(second.expect("epoch")) == whole_epoch(0, 1)
    # Both validate, say, while the other job starves. An ordinary consumer has 2 s.
    waited = waited_secs(server, other.pid)
    eventually(lambda: waited_secs(server, other.pid) > waited + 3.5)
    first.tell("epoch")
    assert got(second.ask("epoch")) == whole_epoch(1, 1)
    assert got(first.expect("epoch")) == whole_epoch(1, 0)
    other.kill()


def test_a_rank_that_rests_too_long_is_told(start: Start) -> None:
    serve(start, wait_for=3, stall_timeout_secs=2.0)
    other = start(roles.follow, batch_size=32)
    first, second = rank(start, 0), rank(start, 1)
    first.tell("epoch")
    second.tell("epoch")
    assert got(first.expect("epoch")) == whole_epoch(0, 0)
    assert got(second.expect("epoch")) == whole_epoch(0, 1)
    other.expect("attached")
    while other.expect("batch")["keys"][0] < 3 * EPOCH:
        pass
    first.tell("epoch")
    # Not with a later epoch, in which the other rank isn't.
    first.expect_error(feedline.StalledError, "epoch 1", "stall_timeout_secs")
    other.kill()


def test_a_job_killed_and_started_again_is_not_paired_with_its_former_self(start: Start) -> None:
    server = serve(start)
    killed = rank(start, 0)
    assert killed.ask("take")["keys"] == [0, 1, 2, 3, 4]
    killed.kill()
    # Its place is free, and the place that was held for the others too: the next epoch begins.
    other = push_the_feed_on(start, server, epoch=2)
    second, first = begin_one_after_the_other(start, server, 1, 0)
    assert expect_the_same_epoch(first, second) >= 2
    other.kill()


def test_one_rank_dies_and_the_other_goes_on(start: Start) -> None:
    serve(start)
    first, second = rank(start, 0), rank(start, 1)
    assert first.ask("take")["keys"] == [0, 1, 2, 3, 4]
    assert second.ask("take")["keys"] == [5, 6, 7, 8, 9]
    second.kill()
    rest = shares(0, steps_of(SAMPLES - 10, 5, WORLD), WORLD, start=10)[0].as_json()
    assert got(first.ask("epoch")) == rest


def test_a_rank_that_comes_too_late_is_told(start: Start) -> None:
    server = serve(start, stall_timeout_secs=3.0)
    first = rank(start, 0)
    assert got(first.ask("epoch")) == whole_epoch(0, 0), "it goes on alone in the end"
    second = rank(start, 1)
    second.tell("epoch")
    second.expect_error(feedline.SamplesGoneError, "rank 1 of 2 came too late", "epoch 0")
    # Both start again.
    first.kill()
    eventually(lambda: not stats(server)["consumers"])
    first, second = rank(start, 0), rank(start, 1)
    first.tell("epoch")
    theirs = second.ask("epoch")
    assert got(theirs) == whole_epoch(epoch_of(theirs), 1)
    assert got(first.expect("epoch")) == whole_epoch(epoch_of(theirs), 0)


@pytest.mark.parametrize("history", [0.0, 1.0])
def test_a_stopped_rank_finds_its_place_or_is_told(start: Start, history: float) -> None:
    server = serve(start, stall_timeout_secs=1.5, history=history, loader="Sized", wait_for=3)
    other = start(roles.follow, batch_size=32)
    first, second = rank(start, 0), rank(start, 1)
    first.tell("take")
    assert second.ask("take")["keys"] == [5, 6, 7, 8, 9]
    assert first.expect("take")["keys"] == [0, 1, 2, 3, 4]
    second.stop()
    assert got(first.ask("epoch")) == whole_epoch(0, 0, start=10)
    eventually(lambda: joined(stats(server)) <= 2)
    second.resume()
    second.tell("epoch")
    if history:
        assert got(second.expect("epoch")) == whole_epoch(0, 1, start=10)
    else:
        second.expect_error(feedline.StalledError, "held up feed")
    other.kill()


def test_ranks_go_on_with_another_server(start: Start) -> None:
    server = serve(start, loader="ByEpoch")
    first, second = (rank(start, number, reconnect_secs=20.0) for number in range(WORLD))
    for _ in range(3):
        first.tell("take")
        second.ask("take")
        first.expect("take")
    # One is a step ahead.
    first.ask("take")
    server.kill()
    serve(start, loader="ByEpoch")
    first.tell("epoch")
    assert got(second.ask("epoch")) == whole_epoch(0, 1, start=30)
    assert got(first.expect("epoch")) == whole_epoch(0, 0, start=40)
    first.tell("epoch")
    assert got(second.ask("epoch")) == whole_epoch(1, 1)
    assert got(first.expect("epoch")) == whole_epoch(1, 0)


def test_two_jobs_of_ranks_and_their_own_pace(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of two jobs that come in any order: the environment tells the jobs apart."""
    serve(start)
    jobs: dict[str, list[Child]] = {"29500": [], "29501": []}
    for number, port in ((0, "29500"), (1, "29501"), (0, "29501"), (1, "29500")):
        monkeypatch.setenv("MASTER_PORT", port)
        child = rank(start, number)
        child.tell("epoch")
        jobs[port].append(child)
    for children in jobs.values():
        reports = [child.expect("epoch") for child in children]
        keys = sorted(reports[0]["keys"] + reports[1]["keys"])
        epoch = epoch_of(reports[0])
        assert keys == list(range(epoch * EPOCH, epoch * EPOCH + SAMPLES))


def test_a_rank_that_has_read_its_part_may_go_before_another_comes(start: Start) -> None:
    serve(start, epochs=1, ring=1000)
    first = rank(start, 0)
    assert got(first.ask("epoch")) == whole_epoch(0, 0)
    assert first.finish() is None
    assert got(rank(start, 1).ask("epoch")) == whole_epoch(0, 1)
