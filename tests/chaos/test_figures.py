"""How long the others pause when a consumer is killed, and when a server's death is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import consumer_process
from chaos.conftest import Note
from chaos.points import SAMPLES
from chaos.scenario import Scenario, await_report, serve_again
from conftest import Start
from support import roles
from support.processes import Child, all_wait_for
from support.waiting import eventually

pytestmark = pytest.mark.alone

ROUNDS = 5
PAUSE_SECS = 0.1
LOST_WITHIN_SECS = 1.0


def _await_all_waiting(victim: Child, scenario: Scenario) -> None:
    eventually(lambda: all_wait_for(victim.pid, scenario.server.ask("stats")["stats"]))


def test_a_consumer_is_killed_and_the_others_go_on(start: Start, note: Note) -> None:
    """The worst moment: it stands still with batches in hand, and everybody waits for it."""
    scenario = Scenario(start)
    killed = []
    for _ in range(ROUNDS):
        victim = scenario.consumer(slow_secs=3600)
        victim.expect("reading")
        # The ring fills, and the others wait.
        _await_all_waiting(victim, scenario)
        killed.append(victim.kill())
        scenario.go_on()
    pauses = [pause for report in scenario.end() for pause in report["pauses"]]
    rounds = [
        max(at + secs - moment for secs, at in pauses if at < moment < at + secs)
        for moment in killed
    ]
    for secs in rounds:
        note("a consumer that all waited for is killed: the others have their next batch", secs)
    # The best of a few: another's work on this machine isn't ours.
    assert min(rounds) < PAUSE_SECS


def test_a_server_is_killed_and_all_know(start: Start, folder: Path, note: Note) -> None:
    rounds = []
    for loader in ("Stuck", "Numbered") * 3:
        server = start(roles.serve, loader=loader, loader_args=[SAMPLES, 10], ring=60, wait_for=3)
        server.expect("ready")
        consumers = [
            start(consumer_process.follow, samples=SAMPLES, batch_size=size) for size in (1, 7, 32)
        ]
        for consumer in consumers:
            consumer.expect("reading")
        killed_at = server.kill()
        errors = [await_report(consumer, "error") for consumer in consumers]
        assert all("ServerLostError" in error["bases"] for error in errors), errors
        rounds.append(max(error["at"] - killed_at for error in errors))
        note(f"server killed ({loader} loader): the last of three has its error", rounds[-1])
        serve_again(folder)
    assert min(rounds) < LOST_WITHIN_SECS
