"""Workload *memory*: what one more consumer adds to the memory of all processes together.

Fresh interpreters (a forked one would share its parent's pages and look too small). A server and N
consumers, each of which has read every byte of several turns of the ring, then stand still and are
measured: the sum of their PSS, less the sum of 1 + N interpreters that have imported the same and
have no feed. What that difference grows by from one consumer to the most is the consumers' own.

The file is both sides: imported, it measures; run, it is one of the processes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import payload, trial
from .counters import Counters
from .processes import TrialFailed, TrialProcesses, bind_to_parent
from .settings import Settings

_READY_SECS = 90.0
_NAME = "bench-memory"


@dataclass(frozen=True)
class Memory(trial.Result):
    """Sums over all processes, in bytes: with a feed, and of as many interpreters without one."""

    consumers: int
    round: int
    pss_bytes: int = 0
    interpreters_pss_bytes: int = 0
    page_table_bytes: int = 0
    interpreters_page_table_bytes: int = 0
    ring_bytes: int = 0
    error: str | None = None

    def beyond_interpreters(self) -> int:
        return self.pss_bytes - self.interpreters_pss_bytes

    def page_tables_beyond(self) -> int:
        return self.page_table_bytes - self.interpreters_page_table_bytes


def run(settings: Settings, folder: Path) -> list[Memory]:
    rounds = settings.memory_repeats
    done = []
    for turn in range(rounds):
        for consumers in settings.memory_consumers:
            trial.progress(f"memory, round {turn + 1} of {rounds}: {consumers} consumers")
            try:
                done.append(_measure(settings, folder, consumers, turn))
            except TrialFailed as failure:
                done.append(Memory(consumers, turn, error=str(failure)))
    return done


def added_per_consumer(
    results: list[Memory], number: Any = Memory.beyond_interpreters
) -> float | None:
    """Bytes that each consumer after the first adds, beyond its interpreter. Median of rounds."""
    slopes = []
    for turn in {memory.round for memory in results}:
        good = {m.consumers: m for m in results if m.round == turn and m.error is None}
        if len(good) > 1:
            few, many = min(good), max(good)
            slopes.append((number(good[many]) - number(good[few])) / (many - few))
    return statistics.median(slopes) if slopes else None


def _measure(settings: Settings, folder: Path, consumers: int, turn: int) -> Memory:
    os.environ["FEEDLINE_DIR"] = str(folder)
    batches = settings.memory_turns * settings.ring_bytes // payload.IMAGE_BATCH_BYTES
    feed = ["server", *["consumer"] * consumers]
    pss, tables, ring_bytes = _sum_of(feed, settings, folder, batches)
    idle_pss, idle_tables, _ = _sum_of(["idle"] * (1 + consumers), settings, folder, batches)
    return Memory(consumers, turn, pss, idle_pss, tables, idle_tables, ring_bytes)


def _sum_of(
    roles: list[str], settings: Settings, folder: Path, batches: int
) -> tuple[int, int, int]:
    """PSS and page tables of these processes together, once each has said that it is ready."""
    with TrialProcesses(limit_secs=_READY_SECS + 30) as processes:
        for slot, role in enumerate(roles):
            command = [sys.executable, "-m", __name__, role, str(settings.ring_bytes)]
            command += [str(len(roles) - 1), str(batches)]
            processes.execute(role, slot, command, folder / f"memory-{slot}.log")
        for role in dict.fromkeys(roles):
            processes.wait_for_counts(role, 1, timeout_secs=_READY_SECS)
        time.sleep(0.3)
        found = [process.memory_bytes() for process in processes.all]
        return (
            sum(f["Pss"] for f in found),
            sum(f["VmPTE"] for f in found),
            processes.counters.noted(0),
        )


def _stand_still(counters: Counters, slot: int) -> None:
    counters.words[counters.line(slot)] = 1
    while not counters.stopped:
        time.sleep(0.05)


def _serve(counters: Counters, slot: int, ring_bytes: int, consumers: int) -> None:
    import feedline

    loader = payload.Endless(payload.prepare("images"))
    ring = f"{ring_bytes // 1_000_000}MB"
    with feedline.Server(loader, _NAME, wait_for=consumers, ring=ring) as server:
        # The ring is there once the first batch has told the schema.
        while not (size := server.stats()["ring_bytes"]):
            time.sleep(0.02)
        counters.note(slot, size)
        _stand_still(counters, slot)


def _consume(counters: Counters, slot: int, batches: int) -> None:
    import feedline

    with feedline.attach(_NAME, timeout_secs=60.0) as feed:
        for taken, batch in enumerate(feed, 1):
            payload.read_every_byte(batch)
            if taken == batches:
                _stand_still(counters, slot)
                return


def _idle(counters: Counters, slot: int) -> None:
    import feedline  # noqa: F401

    payload.read_every_byte(payload.prepare("tiny")[0])
    _stand_still(counters, slot)


def _main() -> None:
    import torch

    role, ring_bytes, consumers, batches, fd, slot, parent, limit = sys.argv[1:]
    bind_to_parent(int(parent), float(limit))
    torch.set_num_threads(1)
    counters = Counters(int(fd))
    try:
        if role == "server":
            _serve(counters, int(slot), int(ring_bytes), int(consumers))
        elif role == "consumer":
            _consume(counters, int(slot), int(batches))
        else:
            _idle(counters, int(slot))
    except Exception as error:
        if not counters.stopped:
            counters.fail(int(slot), f"{type(error).__name__}: {str(error).splitlines()[0]}")
        raise


if __name__ == "__main__":
    _main()
