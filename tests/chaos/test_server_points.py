"""A server that dies or stops at any step of a batch's life: everyone knows."""

from __future__ import annotations

from pathlib import Path

import pytest

import feedline
from chaos import consumer_process
from chaos.conftest import Note
from chaos.points import RING, SAMPLES, SERVER
from chaos.scenario import await_death, await_report, await_stop, read_on, serve_again
from conftest import Start
from support import roles
from support.processes import Child
from support.waiting import allow_to_go_wrong

# The promise is one second; a busy machine gets another.
ATTACH_SECS = 3.0
# The second consumer may not have attached yet.
EARLY = ("welcomed", "join_registered", "join_answered", "ring_prepared", "ring_installed")
# Points that one consumer can lead the server to before the other has attached.
EARLY = ("welcomed", "join_registered", "join_answered", "ring_prepared", "ring_installed")


def start_server(start: Start, point: str, action: str) -> Child:
    server = start(
        roles.serve,
        loader_args=[SAMPLES, 10],
        ring=RING,
        wait_for=2,
        fault=f"server:{point}:{SERVER[point][0]}:{action}",
    )
    server.expect("ready")
    return server


def start_consumers(start: Start, point: str) -> list[Child]:
    """Start an ordinary one, and one that leads the server to the point."""
    return [
        start(consumer_process.follow, samples=SAMPLES, batch_size=16, timeout_secs=ATTACH_SECS),
        start(
            consumer_process.follow, samples=SAMPLES, timeout_secs=ATTACH_SECS, **SERVER[point][1]
        ),
    ]


@pytest.mark.parametrize("point", SERVER)
def test_killed(point: str, start: Start, folder: Path, note: Note) -> None:
    server = start_server(start, point, "kill")
    consumers = start_consumers(start, point)
    died_at = await_death(server)
    for consumer in consumers:
        error = await_report(consumer, "error")
        # A consumer that was not admitted yet waits for another server.
        if "FeedNotFoundError" in error["bases"]:
            assert point in EARLY, error["traceback"]
            continue
        assert "ServerLostError" in error["bases"], error["traceback"]
        note(f"server killed at {point}: consumers have their error", error["at"] - died_at)
    note(f"server killed at {point}: the next one serves", serve_again(folder))


@pytest.mark.parametrize("point", SERVER)
def test_stopped_for_a_moment(point: str, start: Start) -> None:
    """Nothing is lost, and nobody takes it for dead."""
    server = start_server(start, point, "stop")
    consumers = start_consumers(start, point)
    await_stop(server)
    # A consumer may give up.
    allow_to_go_wrong(0.5)
    server.resume()
    for consumer in consumers[: 1 if "leave_after" in SERVER[point][1] else 2]:
        read_on(consumer, 2)
    for consumer in consumers:
        consumer.tell("end")
        await_report(consumer, "done")
    server.tell("stop")
    server.expect("done")
    assert server.exit_code() == 0


def test_killed_while_it_says_goodbye(start: Start, folder: Path) -> None:
    """All was read: a consumer that asks for more hears of the end, or of the loss."""
    server = start(
        roles.serve,
        loader_args=[SAMPLES, 10],
        epochs=2,
        wait_for=2,
        ring=RING,
        fault="server:goodbye:1:kill",
    )
    server.expect("ready")
    consumers = [
        start(consumer_process.follow, samples=SAMPLES, batch_size=size) for size in (7, 16)
    ]
    await_death(server)
    for consumer in consumers:
        error = await_report(consumer, "error")
        assert set(error["bases"]) & {"FeedEndedError", "ServerLostError"}, error["traceback"]
    serve_again(folder)


def test_the_ordinary_build_has_no_fault_points() -> None:
    extension = Path(feedline._core.__file__).read_bytes()
    assert b"FEEDLINE_FAULT" not in extension
