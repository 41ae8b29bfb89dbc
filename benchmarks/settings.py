"""How much of everything: what the command line's options become."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

WORKLOADS = ("fanout", "tiny", "memory", "history", "face", "watched", "loader", "jpeg")


@dataclass(frozen=True)
class Settings:
    """One run's sizes and times. The defaults are the full run's."""

    only: tuple[str, ...] = WORKLOADS
    quick: bool = False
    peers: bool = True
    repeats: int = 5
    secs: float = 1.5
    consumers: tuple[int, ...] = (1, 2, 4, 8)
    ring_bytes: int = 256_000_000
    tiny_ring_bytes: int = 1_000_000
    memory_consumers: tuple[int, ...] = (1, 2, 4)
    memory_turns: int = 3
    memory_repeats: int = 2
    loader_secs: float = 4.0
    jpeg_repeats: int = 3
    jpeg_secs: float = 10.0
    jpeg_images: int = 256
    jpeg_jobs: int = 4
    jpeg_workers: int = 2

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def resolve(
    *,
    quick: bool,
    only: str | None,
    secs: float | None,
    repeats: int | None,
    peers: bool,
) -> Settings:
    """From what was typed to what is done. Raises ValueError with a text for the user."""
    names = tuple(only.split(",")) if only else WORKLOADS
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise ValueError(f"no workload named {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    if secs is not None and secs <= 0:
        raise ValueError(f"--seconds must be more than 0, not {secs:g}")
    if repeats is not None and repeats < 1:
        raise ValueError(f"--repeats must be at least 1, not {repeats}")
    base = (
        Settings(
            quick=True,
            repeats=3,
            secs=0.8,
            consumers=(1, 4),
            memory_consumers=(1, 4),
            memory_repeats=1,
            loader_secs=2.0,
            jpeg_repeats=1,
            jpeg_secs=6.0,
        )
        if quick
        else Settings()
    )
    return Settings(
        **{
            **asdict(base),
            "only": names,
            "peers": peers,
            "secs": secs or base.secs,
            "loader_secs": secs or base.loader_secs,
            "repeats": repeats or base.repeats,
            "jpeg_repeats": repeats or base.jpeg_repeats,
        }
    )
