"""A server that dies at any step of a batch's life and comes back: consumers go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import feedline
from chaos import consumer_process
from chaos.conftest import Note
from chaos.points import RING, SAMPLES, SERVER
from chaos.scenario import all_read_on, await_death, await_report, longest_pause
from conftest import Start
from support import roles
from support.reading import read
from support.waiting import allow_to_go_wrong

BATCHES = SAMPLES // 10
POINTS = {
    **{point: count for point, (count, _) in SERVER.items() if point != "leave_registered"},
    # The call that finds nothing more in the first epoch, and the one before it.
    "before_next": BATCHES + 1,
    "announced": BATCHES,
}


def resumable(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """Options of a server that another one can go on for."""
    return {
        "loader": "Resumable",
        "loader_args": [2000, 10],
        "samples": 2000,
        "state_file": str(tmp_path / "state"),
        "ring": RING,
        **options,
    }


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_started_again(point: str, start: Start, tmp_path: Path, note: Note) -> None:
    options: dict[str, Any] = {
        "loader": "Resumable",
        "loader_args": [SAMPLES, 10],
        "state_file": str(tmp_path / "state"),
        "ring": RING,
        "wait_for": 2,
    }
    server = start(roles.serve, fault=f"server:{point}:{POINTS[point]}:kill", **options)
    server.expect("ready")
    behaviours = [{"batch_size": 16}, {"batch_size": 7, "slow_secs": 0.001, **SERVER[point][1]}]
    consumers = [
        start(consumer_process.follow, samples=SAMPLES, policy="restart", **behaviour)
        for behaviour in behaviours
    ]
    died_at = await_death(server)
    server = start(roles.serve, **options)
    server.expect("ready")
    all_read_on(consumers, 2)
    for consumer in consumers:
        consumer.tell("end")
    pauses = [longest_pause(await_report(consumer, "done"), died_at) for consumer in consumers]
    note(f"server killed at {point} and started again: longest pause", max(pauses))
    server.tell("stop")
    server.expect("done")


def test_a_late_joiner_is_in_the_history_when_it_happens(start: Start, tmp_path: Path) -> None:
    """It needs an older state of the loader than anybody did before it came."""
    options = resumable(tmp_path, history=1.0)
    server = start(roles.serve, **options)
    server.expect("ready")
    early = feedline.attach("train", batch_size=7, reconnect_secs=20)
    first = iter(early)
    before = read(first, limit=100)
    # The state is written now and then: most likely by the next batches, and it need not be.
    allow_to_go_wrong(0.2)
    before.keys += read(first, limit=100).keys
    late = feedline.attach("train", batch_size=16, reconnect_secs=20)
    second = iter(late)
    caught_up = read(second, limit=5)
    # The server goes on for a while, and the state of its loader with it.
    before_too = read(first, limit=20)
    server.kill()
    server = start(roles.serve, **options)
    server.expect("ready")
    with early, late, ThreadPoolExecutor(1) as pool:
        rest = pool.submit(read, first)
        assert caught_up.keys + read(second).keys == list(range(2000))
        assert before.keys + before_too.keys + rest.result().keys == list(range(2000))
        assert rest.result().exact
    server.tell("stop")
    server.expect("done")


def test_a_consumer_without_a_place_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    """It has none to come back to: the others would wait for it until the stall time is over."""
    options = resumable(tmp_path, stall_timeout_secs=100_000.0)
    server = start(roles.serve, fault="server:join_registered:3:kill", **options)
    server.expect("ready")
    feeds = [feedline.attach("train", batch_size=10, reconnect_secs=60) for _ in range(3)]
    epochs = [iter(feed) for feed in feeds]
    first, second, third = epochs
    with ThreadPoolExecutor(3) as pool:
        before = [read(epoch, limit=3) for epoch in (first, second)]
        late = pool.submit(read, third)
        await_death(server)
        server = start(roles.serve, **options)
        server.expect("ready")
        rests = [pool.submit(read, epoch) for epoch in (first, second)]
        for begun, rest in zip(before, rests, strict=True):
            assert begun.keys + rest.result().keys == list(range(2000))
        assert len(late.result().keys) == 2000
    for feed in feeds:
        feed.close()
    server.tell("stop")
    server.expect("done")
