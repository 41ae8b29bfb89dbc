"""One of the three parts: start the jobs, let them warm up, measure them for a while, end them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from feedline._fleet.children import Child, ChildFailedError, Fleet, Step
from feedline._fleet.measure import CPU_TICK_SECS, busy_cpu_secs, memory_bytes, usage
from feedline._fleet.screen import Progress

_HERE = __name__.rpartition(".")[0]
_FEED = "bench"
# For the bar only: importing torch, all jobs at once.
_EXPECTED_START_SECS = 6.0
# A part may take this much longer, for every job to have some batches.
_LONGER = 3.0
_ENOUGH_REPORTS = 3
# A job without a batch for this long, for so many times the longest wait before, and for so much of
# the measured time, has a loader that hangs.
_HANGS_SECS, _HANGS_TIMES, _HANGS_SHARE = 1.0, 3.0, 0.5
_END_SECS = 3.0


class Plan(NamedTuple):
    """What is asked for, of each part."""

    loader: str
    args: list[str]
    batch_size: int | None
    secs: float
    # Until each job has its first batch.
    start_secs: float


@dataclass(frozen=True)
class Part:
    """What was measured, over all processes: jobs, loaders' workers, the feed's server."""

    jobs: int
    samples_per_sec: list[float]
    secs: float
    cpu_secs: float
    memory_bytes: int
    processes: int
    # Of the whole machine, and what others had of them.
    all_cores: int
    other_cores: float

    @property
    def is_crowded(self) -> bool:
        """Whether there was no core left that the jobs could have had."""
        return self.cores + self.other_cores > 0.9 * self.all_cores

    @property
    def mean(self) -> float:
        """Samples per second of a job, on average."""
        return sum(self.samples_per_sec) / self.jobs

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
            "measured_secs": self.secs,
            "cpu_secs": self.cpu_secs,
            "cpu_secs_per_1000_samples": self.cpu_secs_per_1000,
            "cores_busy": self.cores,
            "cores_busy_with_others": self.other_cores,
            "cores_of_machine": self.all_cores,
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
        }


class TooSlowError(Exception):
    """There was not enough to measure."""


def stages(name: str, secs: float) -> dict[str, float]:
    """Name a part's stages, with the seconds that each should take, for the progress bar."""
    return {f"{name}: starting": _EXPECTED_START_SECS, f"{name}: measuring": secs}


def loader_each(name: str, jobs: int, plan: Plan, folder: Path, progress: Progress) -> Part:
    """Every job loads for itself."""
    with Fleet(folder) as fleet:
        options = {"loader": plan.loader, "args": plan.args}
        children = [fleet.start(f"{_HERE}.job", json.dumps(options)) for _ in range(jobs)]
        return _measure(name, fleet, children, plan, progress)


def one_feed(
    name: str, jobs: int, plan: Plan, folder: Path, progress: Progress, *, whole: bool = False
) -> Part:
    """One process loads; every job reads from it. `whole` as in ``Server(whole_batches=)``."""
    with Fleet(folder) as fleet:
        made = {"loader": plan.loader, "args": plan.args}
        options = {**made, "feed": _FEED, "jobs": jobs, "whole_batches": whole}
        server = fleet.start(f"{_HERE}.server", json.dumps(options))
        options = {
            "feed": _FEED,
            "batch_size": plan.batch_size,
            "timeout_secs": plan.start_secs,
        }
        children = [fleet.start(f"{_HERE}.job", json.dumps(options)) for _ in range(jobs)]
        part = _measure(name, fleet, children, plan, progress, server)
        fleet.end([server], _END_SECS)
        return part


def _measure(
    name: str,
    fleet: Fleet,
    jobs: list[Child],
    plan: Plan,
    progress: Progress,
    server: Child | None = None,
) -> Part:
    starting, measuring = stages(name, plan.secs)
    progress.enter(starting)
    _warm_up(fleet, jobs, plan, progress, server)

    progress.enter(measuring)
    start, before, busy_before = monotonic(), usage(fleet.groups), busy_cpu_secs()
    end, latest = start + plan.secs, start + _LONGER * plan.secs
    while (now := monotonic()) < end or (now < latest and not _enough(jobs, start)):
        fleet.listen(min(0.05, max(end - now, 0.01)))
        rate = sum(job.rate(start, now) for job in jobs) / len(jobs)
        progress.show((now - start) / plan.secs, f"{rate:,.0f} samples/s per job")
    end, after, busy_after = monotonic(), usage(fleet.groups), busy_cpu_secs()
    # Asked for only now, because finding out costs CPU time too.
    memory = memory_bytes(fleet.groups)
    fleet.end(jobs, _END_SECS)
    if any(hangs(job.steps, start, end) for job in jobs):
        silent = max(end - job.steps[-1].at for job in jobs)
        raise TooSlowError(
            f"{name}: a job got no batch for the last {silent:.1f} s: the loader hangs, or rests "
            "for longer than was measured\n"
            f"  try it alone, or measure longer: --seconds {10 * plan.secs:g}"
        )
    rates = [job.rate(start, end) for job in jobs]
    if not all(rates):
        raise TooSlowError(
            f"{name}: in {end - start:.0f} s a job got fewer than two batches\n"
            f"  measure longer: --seconds {10 * plan.secs:g}"
        )
    # Less than can be counted is not nothing.
    secs, cpu_secs = end - start, max(after.cpu_secs - before.cpu_secs, CPU_TICK_SECS)
    return Part(
        jobs=len(jobs),
        samples_per_sec=rates,
        secs=secs,
        cpu_secs=cpu_secs,
        memory_bytes=memory,
        processes=after.processes,
        all_cores=os.cpu_count() or 1,
        other_cores=max(0.0, busy_after - busy_before - cpu_secs) / secs,
    )


def hangs(steps: list[Step], start: float, end: float) -> bool:
    """Whether batches came, and then none for far longer than usual: a rate would mean nothing."""
    longest = max((after.at - before.at for before, after in pairwise(steps)), default=end - start)
    least = max(_HANGS_SECS, _HANGS_TIMES * longest, _HANGS_SHARE * (end - start))
    return end - steps[-1].at > least


def _enough(jobs: list[Child], since: float) -> bool:
    return all(sum(step.at >= since for step in job.steps) >= _ENOUGH_REPORTS for job in jobs)


def _warm_up(
    fleet: Fleet, jobs: list[Child], plan: Plan, progress: Progress, server: Child | None
) -> None:
    begun = monotonic()

    def wait_for(is_so: Callable[[], bool]) -> None:
        while not is_so():
            waited = monotonic() - begun
            if waited > plan.start_secs:
                raise TooSlowError(
                    f"not every job had a batch after {plan.start_secs:g} s: the loader is too "
                    "slow to measure, or hangs\n"
                    "  try it alone, with fewer --jobs, or with a part of the data"
                )
            fleet.listen(0.05)
            progress.show(waited / _EXPECTED_START_SECS)

    wait_for(lambda: all(job.steps for job in jobs))
    if server is None:
        return
    # What was loaded before anybody could take it says nothing about the loader's speed.
    had = len(server.steps)
    wait_for(lambda: len(server.steps) > had)
    ahead = server.steps[-1]
    if plan.batch_size is None:
        wait_for(lambda: all(job.steps[-1].batches >= ahead.batches for job in jobs))
    else:
        wait_for(lambda: all(job.steps[-1].samples >= ahead.samples for job in jobs))


__all__ = ["ChildFailedError", "Part", "Plan", "TooSlowError", "loader_each", "one_feed", "stages"]
