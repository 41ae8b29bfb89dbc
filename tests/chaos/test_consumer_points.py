"""A consumer that dies or stops at any step of a batch's life: the others don't notice."""

from __future__ import annotations

import pytest

from chaos.conftest import Note
from chaos.points import CONSUMER
from chaos.scenario import Scenario, await_death, await_stop, longest_pause, read_on
from conftest import Start
from support.waiting import allow_to_go_wrong

STALL_SECS = 2.0


def fault(point: str, action: str) -> str:
    return f"consumer:{point}:{CONSUMER[point][0]}:{action}"


@pytest.mark.parametrize("point", CONSUMER)
def test_killed(point: str, start: Start, note: Note) -> None:
    scenario = Scenario(start)
    victim = scenario.consumer(fault=fault(point, "kill"), **CONSUMER[point][1])
    died_at = await_death(victim)
    scenario.go_on()
    pauses = [longest_pause(report, died_at) for report in scenario.end()]
    note(f"consumer killed at {point}: the others' longest pause", max(pauses))


@pytest.mark.parametrize("point", CONSUMER)
def test_stopped_for_a_moment(point: str, start: Start) -> None:
    """Shorter than the stall time: nothing is lost, for anybody."""
    scenario = Scenario(start, survivors=1)
    victim = scenario.consumer(fault=fault(point, "stop"), **CONSUMER[point][1])
    await_stop(victim)
    # The ring may fill, and everyone may have to wait.
    allow_to_go_wrong(0.3)
    victim.resume()
    scenario.go_on()
    if "leave_after" not in CONSUMER[point][1]:
        read_on(victim, 1)
    *_, last = scenario.end(victim)
    assert last["stalled"] == 0


@pytest.mark.parametrize("point", CONSUMER)
def test_stopped_for_longer_than_the_stall_time(point: str, start: Start, note: Note) -> None:
    """The others go on without it; it goes on where it was, or is told and joins anew."""
    scenario = Scenario(start, stall_secs=STALL_SECS, survivors=1)
    victim = scenario.consumer(fault=fault(point, "stop"), **CONSUMER[point][1])
    stopped_at = await_stop(victim)
    scenario.go_on(epochs=5)
    victim.resume()
    if "leave_after" not in CONSUMER[point][1]:
        read_on(victim, 1)
    *others, last = scenario.end(victim)
    assert last["stalled"] <= 1
    assert all(report["stalled"] == 0 for report in others)
    pauses = [longest_pause(report, stopped_at) for report in others]
    note(f"consumer stopped at {point}, stall time {STALL_SECS} s: longest pause", max(pauses))
