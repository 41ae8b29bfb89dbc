"""Workload *loader*: ``feedline.DataLoader`` beside torch's, with the same dataset and arguments.

One job that only takes its batches, in turn with either loader. The epoch is longer than any run,
and the window begins when batches have arrived: starting workers counts in ``first batch`` only.
CPU time is that of the job's process group: the job, its workers, and the process that
forks them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import trial
from .counters import STOP, Counters
from .processes import TrialFailed, TrialProcesses
from .settings import Settings

TORCH, OURS = "DataLoader", "feedline"
LIGHT, TINY, JPEG = "light", "tiny", "jpeg"
LIGHT_ALONE, TINY_ALONE = "light, no workers", "tiny, no workers"
FIRST_BATCH, FOUR_JOBS = "first batch", "four jobs, jpeg"
WORKS = (LIGHT, TINY, LIGHT_ALONE, TINY_ALONE, JPEG, FIRST_BATCH, FOUR_JOBS)

WORKERS = 2
_JOBS = 4
_BATCH_SIZE = 64
_WARM_BATCHES = 20
_WARM_SECS = 60.0
_SETTLE_SECS = 0.3


@dataclass(frozen=True)
class Loading(trial.Result):
    """One trial of one loader. `error` says why there are no numbers."""

    work: str
    loader: str
    round: int
    samples_per_sec: float | None = None
    """Of each job, where there are several: their mean."""
    slowest_per_sec: float | None = None
    cpu_secs_per_gb: float | None = None
    first_batch_secs: float | None = None
    other_load: float | None = None
    error: str | None = None


def run(settings: Settings, folder: Path) -> list[Loading]:
    from . import pictures

    photos = folder / "loader-pictures"
    photos.mkdir()
    trial.progress("loader: making pictures")
    pictures.paint(photos, settings.jpeg_images, height=375)
    os.environ["FEEDLINE_DIR"] = str(folder)
    done = []
    for turn in range(settings.repeats):
        for work in WORKS:
            # Who begins changes from round to round.
            for name in (TORCH, OURS) if turn % 2 == 0 else (OURS, TORCH):
                trial.progress(f"loader, round {turn + 1} of {settings.repeats}: {work}, {name}")
                done.append(_measure(work, name, turn, photos, settings.loader_secs))
    return done


def median(
    results: list[Loading], work: str, loader: str, number: Callable[[Loading], float | None]
) -> float | None:
    found = [value for one in _good(results, work, loader).values() if (value := number(one))]
    return statistics.median(found) if found else None


def ratio(
    results: list[Loading],
    work: str,
    ours: Callable[[Loading], float | None],
    theirs: Callable[[Loading], float | None] | None = None,
) -> float | None:
    """Form our number by DataLoader's within each round; take the median of the rounds."""
    mine, others = _good(results, work, OURS), _good(results, work, TORCH)
    pairs = [(ours(mine[r]), (theirs or ours)(others[r])) for r in mine.keys() & others.keys()]
    found = [above / below for above, below in pairs if above is not None and below]
    return statistics.median(found) if found else None


def _good(results: list[Loading], work: str, loader: str) -> dict[int, Loading]:
    return {
        one.round: one
        for one in results
        if (one.work, one.loader) == (work, loader) and one.error is None
    }


def _measure(work: str, name: str, turn: int, photos: Path, secs: float) -> Loading:
    try:
        with TrialProcesses(limit_secs=_WARM_SECS + secs + 30) as processes:
            if work == FIRST_BATCH:
                return _measure_first_batch(processes, name, turn)
            jobs = _JOBS if work == FOUR_JOBS else 1
            feed = f"bench-loader-{turn}" if jobs > 1 and name == OURS else None
            for job in range(jobs):
                processes.fork("job", 1 + job, _take, work, name, photos, feed)
            warm = _WARM_BATCHES * _batch_size(work)
            processes.wait_for_counts("job", warm, timeout_secs=_WARM_SECS)
            time.sleep(_SETTLE_SECS)
            window = trial.Window(processes, secs, of_groups=True).observe()
            return _evaluate(Loading(work, name, turn), window, is_alone=jobs == 1)
    except TrialFailed as failure:
        return Loading(work, name, turn, error=str(failure))


def _evaluate(named: Loading, window: trial.Window, *, is_alone: bool) -> Loading:
    rates = [count / window.secs for count in window.counts.values()]
    taken_gb = sum(window.counts.values()) * _sample_bytes(named.work) / 1e9
    if not taken_gb:
        raise TrialFailed(f"no batch in {window.secs:.1f} s")
    cpu_secs = sum(window.cpu_secs.values())
    return Loading(
        named.work,
        named.loader,
        named.round,
        samples_per_sec=statistics.mean(rates),
        slowest_per_sec=min(rates),
        # A server of several jobs is in nobody's group.
        cpu_secs_per_gb=cpu_secs / taken_gb if is_alone else None,
        other_load=window.other_load if is_alone else None,
    )


def _measure_first_batch(processes: TrialProcesses, name: str, turn: int) -> Loading:
    processes.fork("job", 1, _take_first, name)
    processes.wait_for_counts("job", 1, timeout_secs=_WARM_SECS)
    secs = processes.counters.noted(1) / 1e6
    return Loading(FIRST_BATCH, name, turn, first_batch_secs=secs)


def _batch_size(work: str) -> int:
    from . import pictures

    return pictures.BATCH_SIZE if work in (JPEG, FOUR_JOBS) else _BATCH_SIZE


def _sample_bytes(work: str) -> int:
    return 64 if work in (TINY, TINY_ALONE) else 3 * 224 * 224 + 8


def _loader_class(name: str) -> Any:
    import torch.utils.data

    import feedline

    return torch.utils.data.DataLoader if name == TORCH else feedline.DataLoader


def _take(counters: Counters, slot: int, work: str, name: str, photos: Path, feed: Any) -> None:
    import torch

    from . import loader_datasets, pictures

    torch.set_num_threads(1)
    dataset: Any
    if work in (JPEG, FOUR_JOBS):
        dataset = pictures.Pictures(photos)
    else:
        dataset = loader_datasets.Ready(
            loader_datasets.light() if work in (LIGHT, LIGHT_ALONE) else loader_datasets.tiny()
        )
    workers = 0 if work in (LIGHT_ALONE, TINY_ALONE) else WORKERS
    shared = {"name": feed, "wait_for": _JOBS, "linger_secs": 0.1} if feed else {}
    size = _batch_size(work)
    loader = _loader_class(name)(dataset, batch_size=size, num_workers=workers, **shared)
    words, at, samples = counters.words, counters.line(slot), 0
    for _ in loader:
        samples += size
        words[at] = samples
        if words[STOP]:
            break


def _take_first(counters: Counters, slot: int, name: str) -> None:
    from . import loader_datasets

    dataset = loader_datasets.Sleeping()
    loader = _loader_class(name)(dataset, batch_size=_BATCH_SIZE, num_workers=WORKERS)
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    counters.note(slot, int(1e6 * (time.perf_counter() - began)))
    counters.words[counters.line(slot)] = 1
    while not counters.stopped:
        time.sleep(0.01)
