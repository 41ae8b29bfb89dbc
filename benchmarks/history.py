"""Workload *history*: how fast a late joiner reads an epoch from the history, every byte of it.

Against the same consumer reading the same epoch from the ring, while it is produced. The history is
in memory or in a file in the folder of temporary files, whose pages are in the page cache. The
file is both sides: imported, it measures; run, it is the process that serves and reads.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import payload, trial
from .settings import Settings

_NAME = "bench-history"
_BATCHES = 80
_LIMIT_SECS = 120.0


@dataclass(frozen=True)
class Reading(trial.Result):
    """One epoch, read from one place."""

    place: str
    round: int
    gb_per_sec: float = 0.0
    error: str | None = None


def run(settings: Settings, folder: Path) -> list[Reading]:
    done = []
    for turn in range(settings.repeats):
        for place in ("memory", "file"):
            trial.progress(f"history, round {turn + 1} of {settings.repeats}: {place}")
            command = [sys.executable, "-m", __name__, place, str(folder)]
            try:
                out = subprocess.run(
                    command, capture_output=True, text=True, timeout=_LIMIT_SECS, check=True
                )
            except subprocess.SubprocessError as failure:
                done.append(Reading(place, turn, error=str(failure)))
                continue
            rates = json.loads(out.stdout)
            done += [Reading(name, turn, rate) for name, rate in rates.items()]
    return done


def rate(results: list[Reading], place: str) -> float | None:
    good = [r.gb_per_sec for r in results if r.place == place and r.error is None]
    return statistics.median(good) if good else None


def share(results: list[Reading], place: str) -> float | None:
    """Of the rate of a ring in memory in the same round, median of the rounds."""
    by_key = {(r.place, r.round): r.gb_per_sec for r in results if r.error is None}
    shares = [
        value / by_key["ring, memory", turn]
        for (name, turn), value in by_key.items()
        if name == place and ("ring, memory", turn) in by_key
    ]
    return statistics.median(shares) if shares else None


def _read(batches: Any) -> tuple[float, int]:
    began, taken = time.perf_counter(), 0
    for batch in batches:
        payload.read_every_byte(batch)
        taken += 1
    return time.perf_counter() - began, taken


def _main() -> None:
    import torch

    import feedline

    place, folder = sys.argv[1:]
    torch.set_num_threads(1)
    images = payload.prepare("images")
    loader = [images[i % len(images)] for i in range(_BATCHES)]
    samples = _BATCHES * payload.IMAGE_SHAPE[0]
    options: dict[str, Any] = {"history_dir": folder} if place == "file" else {}
    with (
        feedline.Server(loader, _NAME, samples=samples, ring="96MB", history=1.0, **options),
        feedline.attach(_NAME) as early,
        feedline.attach(_NAME) as late,
    ):
        # Twice, so that every page of the ring, and of the reader's mapping, has been there.
        _read(early)
        secs, taken = _read(early)
        gb = payload.IMAGE_BATCH_BYTES / 1e9
        rates = {f"ring, {place}": taken * gb / secs}
        # Nearly to the end of the epoch: the server has produced all of it.
        reading = iter(early)
        for _ in range(_BATCHES - 4):
            next(reading)
        secs, taken = _read(late)
        if taken != _BATCHES:
            raise ValueError(f"a late joiner got {taken} of {_BATCHES} batches")
        rates[place] = taken * gb / secs
    print(json.dumps(rates))


if __name__ == "__main__":
    _main()
