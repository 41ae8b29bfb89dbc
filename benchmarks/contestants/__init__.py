"""The contestants: each starts a producer and N consumers, and `trial` measures them all alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..payload import Kind, Work
from ..processes import TrialProcesses


@dataclass(frozen=True)
class TrialSetup:
    """What one trial asks of a contestant."""

    kind: Kind
    work: Work
    consumers: int
    ring_bytes: int
    batches: list[Any]
    folder: Path
    """For sockets and logs; goes away with the run."""


class Contestant(Protocol):
    """A way to get batches from one process to others.

    `start` starts the processes: the producer in slot 0 with the role "producer", the consumers in
    the slots from 1 on with the role "consumer". Each consumer counts the batches that it has
    taken.
    """

    name: str
    warm_batches: int
    """Each consumer takes this many before the clock starts."""
    least_secs: float
    """A shorter window would count too few batches."""

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None: ...
