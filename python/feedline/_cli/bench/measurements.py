"""The parts of the measurement, and their order.

One job alone is first, and fills the page cache as far as it gets. Jobs with a loader each are
measured in two rounds, before the feed and after it: so a cache that still fills, or a machine that
slows down, favours neither.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from feedline._measurement.children import Child, ChildFailedError, JobGroup
from feedline._measurement.measurement import Measurement, TooSlowError, measure, stages, wait_for
from feedline._measurement.progress import Progress

_HERE = __name__.rpartition(".")[0]
_FEED = "bench"
# A part may take this many times longer, until every job has had some batches.
_LONGER = 3.0
_END_SECS = 3.0


class Plan(NamedTuple):
    """What is asked for."""

    loader: str
    args: list[str]
    jobs: int
    batch_size: int | None
    # How long each part is measured.
    secs: float
    # How long a job may take until its first batch.
    start_secs: float

    @property
    def names(self) -> tuple[str, str, str]:
        many = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        return "one job alone", f"{many}, a loader each", f"{many}, one feed"


class Measurements(NamedTuple):
    """What was measured."""

    alone: Measurement
    # With a loader each: before the feed, and after it.
    rounds: tuple[Measurement, Measurement]
    shared: Measurement

    @property
    def each(self) -> Measurement:
        """Both rounds, combined."""
        first, second = self.rounds
        secs = first.secs + second.secs

        def mean(before: float, after: float) -> float:
            return (before * first.secs + after * second.secs) / secs

        return Measurement(
            samples_per_sec=list(map(mean, first.samples_per_sec, second.samples_per_sec)),
            samples_per_batch=mean(first.samples_per_batch, second.samples_per_batch),
            secs=secs,
            cpu_secs=first.cpu_secs + second.cpu_secs,
            memory_bytes=max(first.memory_bytes, second.memory_bytes),
            processes=max(first.processes, second.processes),
            all_cores=first.all_cores,
            other_cores=mean(first.other_cores, second.other_cores),
        )


def measure_all(plan: Plan, folder: Path) -> Measurements:
    """Measure all parts; what the processes make is in `folder`."""
    alone, each, feed = plan.names
    again, half = f"{each}, again", plan.secs / 2
    order = {alone: plan.secs, each: half, feed: plan.secs, again: half}
    progress = Progress(
        {stage: secs for name in order for stage, secs in stages(name, order[name]).items()},
        plain=False,
    )
    try:
        first = loader_each(alone, 1, plan.secs, plan, folder, progress)
        before = loader_each(each, plan.jobs, half, plan, folder, progress)
        try:
            shared = one_feed(feed, plan, folder, progress)
        except ChildFailedError as error:
            if error.result.get("kind") != "SchemaError":
                raise
            # Shapes vary from batch to batch.
            shared = one_feed(feed, plan, folder, progress, whole=True)
        after = loader_each(again, plan.jobs, half, plan, folder, progress)
        return Measurements(first, (before, after), shared)
    finally:
        progress.clear()


def loader_each(
    name: str, jobs: int, secs: float, plan: Plan, folder: Path, progress: Progress
) -> Measurement:
    """Every job loads for itself."""
    with JobGroup(folder) as group:
        options = {"loader": plan.loader, "args": plan.args}
        children = [group.start(f"{_HERE}.job", json.dumps(options)) for _ in range(jobs)]
        return _measure(name, group, children, secs, plan, progress)


def one_feed(
    name: str, plan: Plan, folder: Path, progress: Progress, *, whole: bool = False
) -> Measurement:
    """One process loads; every job reads from it. `whole` as in ``Server(whole_batches=)``."""
    with JobGroup(folder) as group:
        made = {"loader": plan.loader, "args": plan.args}
        options = {**made, "feed": _FEED, "jobs": plan.jobs, "whole_batches": whole}
        server = group.start(f"{_HERE}.server", json.dumps(options))
        options = {
            "feed": _FEED,
            "batch_size": plan.batch_size,
            "timeout_secs": plan.start_secs,
        }
        children = [group.start(f"{_HERE}.job", json.dumps(options)) for _ in range(plan.jobs)]
        part = _measure(name, group, children, plan.secs, plan, progress, server)
        group.end([server], _END_SECS)
        return part


def _measure(
    name: str,
    group: JobGroup,
    jobs: list[Child],
    secs: float,
    plan: Plan,
    progress: Progress,
    server: Child | None = None,
) -> Measurement:
    starting, _ = stages(name, secs)
    progress.enter(starting)
    try:
        _warm_up(group, jobs, plan, progress, server)
    except TimeoutError:
        raise TooSlowError(
            f"{name}: not every job had a batch after {plan.start_secs:g} s: the loader is too "
            "slow to measure, or hangs\n"
            "  try it alone, with fewer --jobs, or with a part of the data"
        ) from None
    longest_secs = _LONGER * plan.secs
    return measure(name, group, jobs, secs, progress, longest_secs=longest_secs, end_secs=_END_SECS)


def _warm_up(
    group: JobGroup, jobs: list[Child], plan: Plan, progress: Progress, server: Child | None
) -> None:
    within = group, progress, monotonic(), plan.start_secs
    wait_for(lambda: all(job.steps for job in jobs), *within)
    if server is None:
        return
    # What was loaded before a job could take it says nothing about the loader's speed.
    had = len(server.steps)
    wait_for(lambda: len(server.steps) > had, *within)
    ahead = server.steps[-1]
    if plan.batch_size is None:
        wait_for(lambda: all(job.steps[-1].batches >= ahead.batches for job in jobs), *within)
    else:
        wait_for(lambda: all(job.steps[-1].samples >= ahead.samples for job in jobs), *within)
