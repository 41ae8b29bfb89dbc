"""Workload *fan-out*: ready-made batches, 64x3x224x224 uint8 and labels, to 1, 2, 4, 8 consumers.

Once with consumers that only take each batch, once with consumers that read every byte of it.
"""

from __future__ import annotations

from pathlib import Path

from . import payload, trial
from .contestants import Contestant, TrialSetup
from .payload import Work
from .settings import Settings
from .trial import Trial

# With more consumers the same message only grows; its target is with one.
_PEER_CONSUMERS = (1,)


def run(
    settings: Settings, folder: Path, own: list[Contestant], peers: list[Contestant]
) -> list[Trial]:
    """All trials, round by round; within a round each setting goes through all contestants."""
    batches = payload.prepare("images")
    works: tuple[Work, ...] = ("take", "read")
    done: list[Trial] = []
    for turn in range(settings.repeats):
        for work in works:
            for consumers in settings.consumers:
                setup = TrialSetup("images", work, consumers, settings.ring_bytes, batches, folder)
                entrants = list(own)
                if work == "take" and consumers in _PEER_CONSUMERS:
                    entrants += peers
                for contestant in entrants:
                    trial.progress(
                        f"fan-out, round {turn + 1} of {settings.repeats}: {consumers} consumers, "
                        f"{work}: {contestant.name}"
                    )
                    done.append(trial.run(contestant, setup, secs=settings.secs, round=turn))
    return done
