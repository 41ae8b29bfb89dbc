"""Workload *tiny*: batches of 8 int64 to one consumer. The price of a batch, its bytes aside."""

from __future__ import annotations

from pathlib import Path

from . import payload, trial
from .contestants import Contestant, TrialSetup
from .settings import Settings
from .trial import Trial


def run(settings: Settings, folder: Path, own: list[Contestant]) -> list[Trial]:
    setup = TrialSetup("tiny", "take", 1, settings.tiny_ring_bytes, payload.prepare("tiny"), folder)
    done = []
    for turn in range(settings.repeats):
        for contestant in own:
            trial.progress(f"tiny, round {turn + 1} of {settings.repeats}: {contestant.name}")
            done.append(trial.run(contestant, setup, secs=settings.secs, round=turn))
    return done
