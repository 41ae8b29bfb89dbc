"""What Feedline set out to reach, and what this run reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import face, history, jpeg, loader, memory, trial, watched
from .face import Loop
from .history import Reading
from .jpeg import Jobs
from .loader import Loading
from .memory import Memory
from .trial import Trial


@dataclass
class Results:
    """Everything that one run measured; a workload that wasn't asked for is empty."""

    fanout: list[Trial] = field(default_factory=list)
    tiny: list[Trial] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    history: list[Reading] = field(default_factory=list)
    face: list[Loop] = field(default_factory=list)
    watched: list[Trial] = field(default_factory=list)
    loader: list[Loading] = field(default_factory=list)
    jpeg: list[Jobs] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measured(self) -> list[Trial]:
        """Give the trials that were measured from outside, over one window."""
        return self.fanout + self.tiny + self.watched


@dataclass(frozen=True)
class Target:
    """One line of the table: `reached` is None where this run has no number for it."""

    what: str
    bound: float
    at_least: bool
    show: Callable[[float], str]
    reached: float | None

    @property
    def met(self) -> bool | None:
        if self.reached is None:
            return None
        return self.reached >= self.bound if self.at_least else self.reached <= self.bound

    def to_reach(self) -> str:
        return ("≥ " if self.at_least else "≤ ") + self.show(self.bound)

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "to_reach": self.to_reach(),
            "reached": None if self.reached is None else round(self.reached, 4),
            "met": self.met,
        }


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %".replace(".0 %", " %")


def _times(value: float) -> str:
    return f"{value:.1f}×".replace(".0×", "×")


def _hundredths(value: float) -> str:
    return f"{value:.2f}×"


def _rate(value: float) -> str:
    return f"{value:,.0f}/s"


def judge(results: Results) -> list[Target]:
    """All targets. Ratios are formed within each round, and their median is taken."""

    def take(contestant: str, consumers: int) -> dict[int, Trial]:
        return trial.chosen(results.fanout, contestant, consumers, "take")

    def against(peer: str, consumers: int) -> float | None:
        return trial.ratio(take("feedline", consumers), take(peer, consumers))

    tiny = {
        name: trial.chosen(results.tiny, name, 1, "take")
        for name in ("feedline", "torch.multiprocessing")
    }
    return [
        Target("of a plain memcpy's rate, 1 consumer", 0.9, True, _percent, against("memcpy", 1)),
        Target("of a plain memcpy's rate, 4 consumers", 0.8, True, _percent, against("memcpy", 4)),
        Target(
            "torch.multiprocessing's rate, 4 consumers",
            10,
            True,
            _times,
            against("torch.multiprocessing", 4),
        ),
        Target("tensorsocket's rate, 1 consumer", 60, True, _times, against("tensorsocket", 1)),
        *(
            Target(
                f"of the copy's CPU-seconds per GB, each consumer of {n}",
                0.1,
                False,
                _percent,
                trial.ratio(
                    take("feedline", n), take("memcpy", n), lambda t: t.consumer_cpu_secs_per_gb
                ),
            )
            for n in (1, 4)
        ),
        Target("tiny batches", 100_000, True, _rate, trial.median(tiny["feedline"])),
        Target(
            "torch.multiprocessing's rate, tiny batches",
            10,
            True,
            _times,
            trial.ratio(tiny["feedline"], tiny["torch.multiprocessing"]),
        ),
        Target("of the ring, memory per added consumer", 0.02, False, _percent, _memory(results)),
        Target(
            "of the ring's rate, a late joiner from a history in a file",
            0.5,
            True,
            _percent,
            history.share(results.history, "file"),
        ),
        Target(
            "added to a batch by the torch face",
            5,
            False,
            lambda value: f"{value:.2f} µs",
            face.beyond_bare(results.face, "feed"),
        ),
        Target(
            "of the unwatched rate, with top, dashboard and Prometheus",
            0.98,
            True,
            _percent,
            watched.share(results.watched, watched.EVERYBODY),
        ),
        Target(
            "of the unwatched CPU-seconds per GB, with the same",
            1.02,
            False,
            _percent,
            watched.share(results.watched, watched.EVERYBODY, watched.cpu_secs_per_gb),
        ),
        *_loader(results.loader),
        Target(
            "a loader each, four JPEG jobs, the slowest",
            3.5,
            True,
            _times,
            jpeg.slowest_job_ratio(results.jpeg),
        ),
    ]


def _loader(results: list[Loading]) -> list[Target]:
    """What one job gains, and four of one name."""

    def rate(work: str, what: str, bound: float) -> Target:
        reached = loader.ratio(results, work, lambda one: one.samples_per_sec)
        return Target(f"DataLoader's rate, {what}", bound, True, _hundredths, reached)

    return [
        Target(
            "of DataLoader's CPU-seconds per GB, light samples",
            1 / 8,
            False,
            _percent,
            loader.ratio(results, loader.LIGHT, lambda one: one.cpu_secs_per_gb),
        ),
        rate(loader.LIGHT, "light samples, 2 workers", 4),
        rate(loader.TINY, "tiny samples, 2 workers", 5),
        rate(loader.LIGHT_ALONE, "light samples, no workers", 1),
        rate(loader.TINY_ALONE, "tiny samples, no workers", 1),
        rate(loader.JPEG, "JPEG, 2 workers", 1.08),
        Target(
            "of DataLoader's time to the first batch, samples of 50 ms",
            0.6,
            False,
            _percent,
            loader.ratio(results, loader.FIRST_BATCH, lambda one: one.first_batch_secs),
        ),
        Target(
            "a DataLoader each, four JPEG jobs of one name, the slowest",
            3.8,
            True,
            _times,
            loader.ratio(
                results,
                loader.FOUR_JOBS,
                lambda one: one.slowest_per_sec,
                lambda one: one.samples_per_sec,
            ),
        ),
    ]


def _memory(results: Results) -> float | None:
    added = memory.added_per_consumer(results.memory)
    ring = max((m.ring_bytes for m in results.memory), default=0)
    return None if added is None or not ring else max(0.0, added) / ring
