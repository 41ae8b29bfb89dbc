"""Workload *jpeg*: four jobs with a JPEG-decoding DataLoader each, against four on one feed.

A job reads every byte of its batches and does nothing else: what is measured is the loading. One
job alone shows what a loader gives when nobody shares the machine with it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pictures, trial
from .counters import STOP, Counters
from .payload import read_every_byte
from .processes import TrialFailed, TrialProcesses
from .settings import Settings

ALONE, EACH, SHARED = "one job alone", "a DataLoader each", "one feed"
_NAME = "bench-jpeg"
_WARM_SECS = 60.0


@dataclass(frozen=True)
class Jobs(trial.Result):
    """One trial: samples/s of each job."""

    setting: str
    round: int
    samples_per_sec: tuple[float, ...] = ()
    error: str | None = None


def run(settings: Settings, folder: Path) -> list[Jobs]:
    photos = folder / "pictures"
    photos.mkdir()
    trial.progress("jpeg: making pictures")
    pictures.paint(photos, settings.jpeg_images)
    starts: dict[str, Callable[[TrialProcesses], None]] = {
        ALONE: lambda processes: _start_loaders(processes, settings, photos, 1),
        EACH: lambda processes: _start_loaders(processes, settings, photos, settings.jpeg_jobs),
        SHARED: lambda processes: _start_feed(processes, settings, photos, folder),
    }
    done = []
    for turn in range(settings.jpeg_repeats):
        for setting, start in starts.items():
            trial.progress(f"jpeg, round {turn + 1} of {settings.jpeg_repeats}: {setting}")
            done.append(_measure(setting, turn, start, settings.jpeg_secs))
    return done


def speed(results: list[Jobs], setting: str) -> dict[int, Jobs]:
    return {j.round: j for j in results if j.setting == setting and j.error is None}


def slowest_job_ratio(results: list[Jobs]) -> float | None:
    """Compare the slowest job on the feed with the mean of the others; median of rounds."""
    shared, each = speed(results, SHARED), speed(results, EACH)
    ratios = [
        min(shared[turn].samples_per_sec) / statistics.mean(each[turn].samples_per_sec)
        for turn in shared.keys() & each.keys()
    ]
    return statistics.median(ratios) if ratios else None


def _measure(setting: str, turn: int, start: Callable[[TrialProcesses], None], secs: float) -> Jobs:
    try:
        with TrialProcesses(limit_secs=_WARM_SECS + secs + 30) as processes:
            start(processes)
            # What the workers prepared in advance is out of the way by then.
            warm = 8 * pictures.BATCH_SIZE
            processes.wait_for_counts("job", warm, timeout_secs=_WARM_SECS)
            window = trial.Window(processes, secs).observe()
            rates = tuple(
                window.counts[job.slot] / window.secs for job in processes.with_role("job")
            )
            return Jobs(setting, turn, rates)
    except TrialFailed as failure:
        return Jobs(setting, turn, error=str(failure))


def _start_loaders(processes: TrialProcesses, settings: Settings, photos: Path, jobs: int) -> None:
    for job in range(jobs):
        processes.fork("job", 1 + job, _job_with_loader, photos, settings.jpeg_workers)


def _start_feed(processes: TrialProcesses, settings: Settings, photos: Path, folder: Path) -> None:
    os.environ["FEEDLINE_DIR"] = str(folder)
    processes.fork("server", 0, _serve, photos, settings.jpeg_workers, settings.jpeg_jobs)
    for job in range(settings.jpeg_jobs):
        processes.fork("job", 1 + job, _job_with_feed)


def _job_with_loader(counters: Counters, slot: int, photos: Path, workers: int) -> None:
    _train(counters, slot, pictures.loader(photos, workers))


def _job_with_feed(counters: Counters, slot: int) -> None:
    import feedline

    _train(counters, slot, feedline.attach(_NAME, batch_size=pictures.BATCH_SIZE))


def _serve(counters: Counters, slot: int, photos: Path, workers: int, jobs: int) -> None:
    import feedline

    with feedline.Server(pictures.loader(photos, workers), _NAME, wait_for=jobs) as server:
        while not counters.stopped:
            if server.stats()["state"] not in ("starting", "running"):
                server.wait()
                return
            time.sleep(0.1)


def _train(counters: Counters, slot: int, loader: Any) -> None:
    import torch

    torch.set_num_threads(1)
    words, at, samples = counters.words, counters.line(slot), 0
    for batch in loader:
        read_every_byte(batch)
        samples += len(batch[1])
        words[at] = samples
        if words[STOP]:
            break
