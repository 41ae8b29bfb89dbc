"""A job whose ranks are killed and started again with other numbers of ranks and workers."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dataloader.datasets import Numbers, drawing
from feedline import DataLoader
from support.child import say
from support.waiting import eventually

SAMPLES = 97
SEED = 5
_FORK = multiprocessing.get_context("fork")


def _sample(number: int) -> Any:
    """Take long enough for a worker to be killed in the middle of it."""
    sum(range(10_000))
    return drawing(number)


def _rows(batch: Any) -> list[str]:
    """Return what each sample of a batch is, draws included."""
    return [repr([part[at].tolist() for part in batch]) for at in range(len(batch[0]))]


def _loader(batch_size: int, **keywords: Any) -> DataLoader:
    return DataLoader(Numbers(SAMPLES, _sample), batch_size, shuffle=True, seed=SEED, **keywords)


def _rank(
    shard: tuple[int, int], batch_size: int, num_workers: int, state: Any, steps: Connection
) -> None:
    loader = _loader(batch_size, num_workers=num_workers, shard=shard)
    if state is not None:
        loader.load_state_dict(state)
    while True:
        for batch in loader:
            steps.send((_rows(batch), loader.state_dict()))


@dataclass
class _Chain:
    """The sequence of all samples up to a place, as a hash."""

    rows: int = 0
    digest: str = ""

    def with_rows(self, rows: list[str]) -> _Chain:
        digest = self.digest
        for row in rows:
            digest = hashlib.sha256((digest + row).encode()).hexdigest()
        return _Chain(self.rows + len(rows), digest)


@dataclass
class _Job:
    """The processes of one start."""

    ranks: list[tuple[Any, Connection]] = field(default_factory=list)

    def start(self, chance: random.Random, state: Any) -> None:
        left = SAMPLES - (state["sample"] if state else 0)
        world, batch_size = min(chance.randint(1, 3), left or 1), chance.randint(1, 12)
        for rank in range(world):
            ours, theirs = _FORK.Pipe(duplex=False)
            arguments = ((rank, world), batch_size, chance.randint(1, 2), state, theirs)
            process = _FORK.Process(target=_rank, args=arguments)
            process.start()
            theirs.close()
            self.ranks.append((process, ours))

    def step(self) -> tuple[list[str], Any]:
        """Wait for all ranks' next step. Their states are one."""
        steps = [connection.recv() for _, connection in self.ranks]
        states = [state for _, state in steps]
        assert all(state == states[0] for state in states), states
        return [row for rows, _ in steps for row in rows], states[0]

    def kill_worker(self, chance: random.Random) -> None:
        """Kill a worker of a rank. It has none for a moment, where an epoch begins."""
        process, _ = chance.choice(self.ranks)

        workers: list[int] = []

        def has_workers() -> bool:
            forkers = _children(process.pid)
            workers[:] = [worker for forker in forkers for worker in _children(forker)]
            return bool(workers)

        eventually(has_workers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)

    def kill(self) -> None:
        for process, connection in self.ranks:
            process.kill()
            process.join()
            connection.close()
        self.ranks.clear()


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]
    return []


def restart_often(changes: int, seed: int) -> None:
    """Start a job so many times; report its chain, and that of a run that nobody disturbs."""
    chance, job = random.Random(seed), _Job()
    state: Any = None
    chain, workers_killed = _Chain(), 0
    try:
        for _ in range(changes):
            job.start(chance, state)
            seen, every = chain, chance.randint(1, 3)
            for step in range(1, chance.randint(1, 9)):
                if chance.random() < 0.2:
                    job.kill_worker(chance)
                    workers_killed += 1
                rows, now = job.step()
                seen = seen.with_rows(rows)
                if step % every == 0:
                    # A checkpoint; what follows is lost if the job is killed before the next one.
                    chain, state = seen, now
            job.kill()
    finally:
        job.kill()
    undisturbed, whole = _Chain(), _loader(SAMPLES)
    while undisturbed.rows < chain.rows:
        (batch,) = whole
        undisturbed = undisturbed.with_rows(_rows(batch)[: chain.rows - undisturbed.rows])
    say(
        "read",
        rows=chain.rows,
        workers_killed=workers_killed,
        chain=chain.digest,
        undisturbed=undisturbed.digest,
    )
