"""One half of the demo: start the jobs, let them warm up, measure them for a while, end them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from feedline._fleet.children import Child, ChildFailedError, Fleet
from feedline._fleet.measure import memory_bytes, usage
from feedline._fleet.screen import Progress

_HERE = __name__.rpartition(".")[0]
BATCH_SIZES = (16, 32, 48, 64)
SERVER_BATCH_SIZE = 64
START_TIMEOUT_SECS = 120.0
# For the bar only: importing torch, all jobs at once.
EXPECTED_START_SECS = 8.0


@dataclass(frozen=True)
class Job:
    """What one job did; `exact` is whether every whole epoch brought each sample exactly once."""

    batch_size: int
    rate: float
    loss: float
    epochs: int
    exact: bool


@dataclass(frozen=True)
class Half:
    """What was measured, over all processes: jobs, loaders' workers, the feed's server."""

    jobs: list[Job]
    cpu_secs_per_1000: float
    cores_used: float
    memory_bytes: int
    processes: int

    @property
    def rate(self) -> float:
        """Samples per second of a job, on average."""
        return sum(job.rate for job in self.jobs) / len(self.jobs)

    @property
    def loss(self) -> float:
        """Where training got to in the time, on average over the jobs."""
        return sum(job.loss for job in self.jobs) / len(self.jobs)


def stages(name: str, secs: float) -> dict[str, float]:
    """Name the half's stages, with the seconds that each should take, for the progress bar."""
    return {f"{name}: starting": EXPECTED_START_SECS, f"{name}: training": secs}


def loader_each(name: str, jobs: int, secs: float, folder: Path, progress: Progress) -> Half:
    """Every job decodes for itself."""
    with Fleet(folder) as fleet:
        children = [
            fleet.start(f"{_HERE}.job", "loader", folder, size) for size in _batch_sizes(jobs)
        ]
        return _measure(name, fleet, children, secs, progress)


def one_feed(name: str, jobs: int, secs: float, folder: Path, progress: Progress) -> Half:
    """One process decodes; every job reads from it."""
    with Fleet(folder) as fleet:
        server = fleet.start(f"{_HERE}.server", folder, SERVER_BATCH_SIZE, jobs)
        children = [
            fleet.start(f"{_HERE}.job", "feed", folder, size) for size in _batch_sizes(jobs)
        ]
        half = _measure(name, fleet, children, secs, progress)
        fleet.end([server])
        return half


def _batch_sizes(jobs: int) -> list[int]:
    return [BATCH_SIZES[job % len(BATCH_SIZES)] for job in range(jobs)]


def _measure(name: str, fleet: Fleet, jobs: list[Child], secs: float, progress: Progress) -> Half:
    starting, training = stages(name, secs)
    _await_first_steps(fleet, jobs, progress, starting)

    progress.enter(training)
    start, before = monotonic(), usage(fleet.groups)
    end = start + secs
    while (now := monotonic()) < end:
        fleet.listen(min(0.05, end - now))
        rate = sum(job.rate(start, now) for job in jobs) / len(jobs)
        progress.show((now - start) / secs, f"{rate:,.0f} samples/s per job")
    after = usage(fleet.groups)
    # Asked for only now, because finding out costs CPU time too.
    memory = memory_bytes(fleet.groups)

    fleet.end(jobs)
    cores_used = (after.cpu_secs - before.cpu_secs) / secs
    rates = [job.rate(start, end) for job in jobs]
    if not all(rates):
        longer = f"try --seconds {10 * secs:g}"
        raise ChildFailedError(f"a job made fewer than two training steps in {secs:g} s; {longer}")
    return Half(
        jobs=[_outcome(job, rate) for job, rate in zip(jobs, rates, strict=True)],
        cpu_secs_per_1000=1000 * cores_used / sum(rates),
        cores_used=cores_used,
        memory_bytes=memory,
        processes=after.processes,
    )


def _await_first_steps(fleet: Fleet, jobs: list[Child], progress: Progress, stage: str) -> None:
    progress.enter(stage)
    begun = monotonic()
    while not all(job.steps for job in jobs):
        waited = monotonic() - begun
        if waited > START_TIMEOUT_SECS:
            raise ChildFailedError(f"not every job had made a training step after {waited:.0f} s")
        fleet.listen(0.05)
        progress.show(waited / EXPECTED_START_SECS)


def _outcome(job: Child, rate: float) -> Job:
    if job.result is None:
        raise job.failure("ended without a result")
    return Job(rate=rate, **job.result)
