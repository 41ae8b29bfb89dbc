"""Workload *face*: what a batch costs a plain ``for`` loop, through each face of a feed.

One replayed epoch of tiny batches in one process, so that nothing is waited for. ``bare`` is the
consumer itself; ``feed`` what ``attach`` gives, a DataLoader; ``share`` the same with errors that
name a log; ``transform`` with a function that does nothing; ``dataset`` torch's own iterator around
``feed.dataset``, as frameworks that rebuild the loader use it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import trial
from .settings import Settings

_BATCHES = 20_000
_LIMIT_SECS = 120.0
FACES = ("bare", "feed", "share", "transform", "dataset")


@dataclass(frozen=True)
class Loop(trial.Result):
    """One epoch through one face."""

    face: str
    round: int
    micros_per_batch: float = 0.0
    error: str | None = None


def run(settings: Settings) -> list[Loop]:
    trial.progress("face")
    command = [sys.executable, "-m", __name__, str(settings.repeats)]
    try:
        out = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_SECS, check=True
        )
    except subprocess.SubprocessError as failure:
        return [Loop("feed", 0, error=str(failure))]
    return [Loop(**loop) for loop in json.loads(out.stdout)]


def micros(results: list[Loop], face: str) -> float | None:
    good = [loop.micros_per_batch for loop in results if loop.face == face and loop.error is None]
    return statistics.median(good) if good else None


def beyond_bare(results: list[Loop], face: str) -> float | None:
    """What a face adds to a batch, in µs: median of the rounds."""
    by_key = {(loop.face, loop.round): loop.micros_per_batch for loop in results}
    added = [
        value - by_key["bare", turn]
        for (name, turn), value in by_key.items()
        if name == face and ("bare", turn) in by_key
    ]
    return statistics.median(added) if added else None


def _main() -> None:
    import torch
    from torch.utils.data import DataLoader

    import feedline

    batch = torch.arange(8)
    loops: list[dict[str, Any]] = []
    with feedline.Server([batch] * _BATCHES, "bench-face", replay=True):
        feed = feedline.attach("bench-face")
        shared = feedline.attach("bench-face")
        shared._attachment.server_log = Path("bench-face.log")
        transformed = feedline.attach("bench-face", transform=lambda batch: batch)
        made: Any = feedline.attach("bench-face")
        rebuilt: Any = DataLoader(made.dataset, made.batch_size, collate_fn=made.collate_fn)
        attachment = feedline.attach("bench-face")._attachment
        faces: dict[str, Callable[[], Any]] = {
            "bare": lambda: attachment.core.iterate(attachment),
            "feed": feed.__iter__,
            "share": shared.__iter__,
            "transform": transformed.__iter__,
            "dataset": rebuilt.__iter__,
        }
        for turn in range(-1, int(sys.argv[1])):
            for face in FACES:
                began, taken = time.perf_counter(), 0
                for _ in faces[face]():
                    taken += 1
                secs = time.perf_counter() - began
                if taken != _BATCHES:
                    raise ValueError(f"{face} gave {taken} of {_BATCHES} batches")
                # The first round touches everything once.
                if turn >= 0:
                    loops.append(asdict(Loop(face, turn, 1e6 * secs / taken)))
    print(json.dumps(loops))


if __name__ == "__main__":
    _main()
