"""One half of the demo: start the jobs, let them warm up, measure them for a while, end them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from feedline._measurement.children import Child, JobGroup
from feedline._measurement.measurement import Measurement, TooSlowError, measure, stages, wait_for
from feedline._measurement.progress import Progress

_HERE = __name__.rpartition(".")[0]
BATCH_SIZES = (16, 32, 48, 64)
SERVER_BATCH_SIZE = 64
START_TIMEOUT_SECS = 120.0
END_TIMEOUT_SECS = 10.0


@dataclass(frozen=True)
class Job:
    """What one job did; `exact` is whether every whole epoch brought each sample exactly once."""

    batch_size: int
    loss: float
    epochs: int
    exact: bool


@dataclass(frozen=True)
class Half:
    """What was measured, and what each job did."""

    part: Measurement
    jobs: list[Job]

    @property
    def loss(self) -> float:
        """The loss that training reached in the time, averaged over the jobs."""
        return sum(job.loss for job in self.jobs) / len(self.jobs)

    def as_json(self) -> dict[str, Any]:
        return self.part.as_json() | {"each_job": [asdict(job) for job in self.jobs]}


def loader_each(name: str, jobs: int, secs: float, folder: Path, progress: Progress) -> Half:
    """Every job decodes for itself."""
    with JobGroup(folder) as group:
        children = [
            group.start(f"{_HERE}.job", "loader", folder, size) for size in _batch_sizes(jobs)
        ]
        return _measure(name, group, children, secs, progress)


def one_feed(name: str, jobs: int, secs: float, folder: Path, progress: Progress) -> Half:
    """One process decodes; every job reads from it."""
    with JobGroup(folder) as group:
        server = group.start(f"{_HERE}.server", folder, SERVER_BATCH_SIZE, jobs)
        children = [
            group.start(f"{_HERE}.job", "feed", folder, size) for size in _batch_sizes(jobs)
        ]
        half = _measure(name, group, children, secs, progress)
        group.end([server], END_TIMEOUT_SECS)
        return half


def _batch_sizes(jobs: int) -> list[int]:
    return [BATCH_SIZES[job % len(BATCH_SIZES)] for job in range(jobs)]


def _measure(
    name: str, group: JobGroup, jobs: list[Child], secs: float, progress: Progress
) -> Half:
    starting, _ = stages(name, secs)
    progress.enter(starting)
    begun = monotonic()
    try:
        wait_for(lambda: all(job.steps for job in jobs), group, progress, begun, START_TIMEOUT_SECS)
    except TimeoutError:
        raise TooSlowError(
            f"{name}: not every job had made a training step after {START_TIMEOUT_SECS:g} s\n"
            "  try fewer --jobs, or more --cores"
        ) from None
    part = measure(name, group, jobs, secs, progress, end_secs=END_TIMEOUT_SECS)
    return Half(part, [_outcome(job) for job in jobs])


def _outcome(job: Child) -> Job:
    if job.result is None:
        raise job.failure("ended without a result")
    return Job(**job.result)
