"""One part of a comparison: jobs that run at the same time, measured for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import Any

from feedline._measurement.children import Child, JobGroup, Step
from feedline._measurement.progress import Progress
from feedline._measurement.usage import (
    CPU_TICK_SECS,
    allowed_cores,
    allowed_cpus,
    busy_cpu_secs,
    memory_bytes,
    usage,
)

# For the bar only: the time to import torch in all jobs at once.
_EXPECTED_START_SECS = 8.0
_ENOUGH_REPORTS = 3
# A loader hangs if its job had no batch for this long, for this many times the longest wait before,
# and for this share of the measured time.
_HANGS_SECS, _HANGS_TIMES, _HANGS_SHARE = 1.0, 3.0, 0.5
# Other processes may use this share of the cores without being mentioned.
_QUIET_SHARE = 0.1


@dataclass(frozen=True)
class Measurement:
    """What was measured, over all processes: jobs, loaders' workers, the feed's server."""

    # Of each job.
    samples_per_sec: list[float]
    samples_per_batch: float
    secs: float
    cpu_secs: float
    memory_bytes: int
    processes: int
    # The cores that the processes may use, and how many of them others used.
    all_cores: float
    other_cores: float

    @property
    def jobs(self) -> int:
        return len(self.samples_per_sec)

    @property
    def is_crowded(self) -> bool:
        """Whether the jobs had no core left."""
        return self.cores + self.other_cores > 0.9 * self.all_cores

    @property
    def mean(self) -> float:
        """Samples per second of a job, on average."""
        return self.total / self.jobs

    @property
    def slowest(self) -> float:
        return min(self.samples_per_sec)

    @property
    def total(self) -> float:
        """Samples per second of all jobs together."""
        return sum(self.samples_per_sec)

    @property
    def cores(self) -> float:
        """How many were busy."""
        return self.cpu_secs / self.secs

    @property
    def cpu_secs_per_1000(self) -> float:
        """CPU-seconds for 1,000 samples in the hands of a job."""
        return 1000 * self.cores / self.total

    def as_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "samples_per_sec": self.samples_per_sec,
            "samples_per_sec_mean": self.mean,
            "samples_per_sec_min": self.slowest,
            "samples_per_sec_total": self.total,
            "samples_per_batch": self.samples_per_batch,
            "measured_secs": self.secs,
            "cpu_secs": self.cpu_secs,
            "cpu_secs_per_1000_samples": self.cpu_secs_per_1000,
            "cores_busy": self.cores,
            "cores_busy_with_others": self.other_cores,
            "cores_allowed": self.all_cores,
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
        }


class TooSlowError(Exception):
    """There was not enough to measure."""


def stages(name: str, secs: float) -> dict[str, float]:
    """Name a part's stages, with the seconds that each should take, for the progress bar."""
    return {f"{name}: starting": _EXPECTED_START_SECS, f"{name}: measuring": secs}


def wait_for(
    is_so: Callable[[], bool],
    group: JobGroup,
    progress: Progress,
    begun: float,
    timeout_secs: float,
) -> None:
    """Listen until it is so; a ``TimeoutError`` when so much time has passed since `begun`."""
    while not is_so():
        waited = monotonic() - begun
        if waited > timeout_secs:
            raise TimeoutError
        group.listen(0.05)
        progress.show(waited / _EXPECTED_START_SECS)


def measure(
    name: str,
    group: JobGroup,
    jobs: list[Child],
    secs: float,
    progress: Progress,
    *,
    longest_secs: float = 0.0,
    end_secs: float,
) -> Measurement:
    """Measure jobs that have begun, and end them.

    Goes on up to `longest_secs` until each has had some batches. They have `end_secs` to end.
    """
    _, measuring = stages(name, secs)
    progress.enter(measuring)
    start, before, busy_before = monotonic(), usage(group.groups), busy_cpu_secs()
    end, latest = start + secs, start + longest_secs
    while (now := monotonic()) < end or (now < latest and not _enough(jobs, start)):
        group.listen(min(0.05, max(end - now, 0.01)))
        rate = sum(job.rate(start, now) for job in jobs) / len(jobs)
        progress.show((now - start) / secs, f"{rate:,.0f} samples/s per job")
    end, after, busy_after = monotonic(), usage(group.groups), busy_cpu_secs()
    # Read only now, because reading it costs CPU time too.
    memory = memory_bytes(group.groups)
    group.end(jobs, end_secs)
    measured_secs = end - start
    longer = f"measure longer: --seconds {10 * secs:g}"
    if any(hangs(job.steps, start, end) for job in jobs):
        silent = max(end - job.steps[-1].at for job in jobs)
        raise TooSlowError(
            f"{name}: a job got no batch for the last {silent:.1f} s: the loader hangs, or rests "
            f"for longer than was measured\n  try it alone, or {longer}"
        )
    rates = [job.rate(start, end) for job in jobs]
    if not all(rates):
        raise TooSlowError(
            f"{name}: in {measured_secs:.0f} s a job got fewer than two batches\n  {longer}"
        )
    # Less than can be counted is not zero.
    cpu_secs = max(after.cpu_secs - before.cpu_secs, CPU_TICK_SECS)
    all_cores = allowed_cores()
    # Others may use the cores that our quota keeps from us.
    others = (busy_after - busy_before - cpu_secs) / measured_secs - len(allowed_cpus()) + all_cores
    last = [job.steps[-1] for job in jobs]
    return Measurement(
        samples_per_sec=rates,
        samples_per_batch=sum(step.samples for step in last) / sum(step.batches for step in last),
        secs=measured_secs,
        cpu_secs=cpu_secs,
        memory_bytes=memory,
        processes=after.processes,
        all_cores=all_cores,
        other_cores=max(0.0, others),
    )


def hangs(steps: list[Step], start: float, end: float) -> bool:
    """Whether batches came, and then none for far longer than usual: a rate would mean nothing."""
    longest = max((after.at - before.at for before, after in pairwise(steps)), default=end - start)
    least = max(_HANGS_SECS, _HANGS_TIMES * longest, _HANGS_SHARE * (end - start))
    return end - steps[-1].at > least


def _enough(jobs: list[Child], since: float) -> bool:
    return all(sum(step.at >= since for step in job.steps) >= _ENOUGH_REPORTS for job in jobs)


def disturbance(parts: dict[str, Measurement]) -> str | None:
    """Say so if others kept the cores busy: then speeds can't be compared."""
    for name, part in parts.items():
        if part.other_cores > _QUIET_SHARE * part.all_cores and part.is_crowded:
            return (
                f"Note: with {name}, something else kept {part.other_cores:.1f} of the "
                f"{part.all_cores:g} cores busy.\n"
                "The CPU-seconds hold, the speeds don't: measure again when it is quiet."
            )
    return None
