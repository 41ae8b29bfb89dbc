"""One trial: start a contestant, let it warm up, count over one window, end it.

Trials are short and interleaved (A B C A B C ...), and ratios are formed within a round, so that a
slow minute of the machine falls on all contestants alike.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .contestants import Contestant, TrialSetup
from .payload import batch_bytes
from .processes import TrialFailed, TrialProcess, TrialProcesses

_WARM_UP_SECS = 40.0
_SETTLE_SECS = 0.2
_EXTRA_LIFE_SECS = 30.0


@dataclass(frozen=True)
class Result:
    """What is written to the run's file: without what there is none of."""

    def as_json(self) -> dict[str, Any]:
        return {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in asdict(self).items()
            if value is not None
        }


@dataclass(frozen=True)
class Trial(Result):
    """What one trial gave. Rates are per consumer; `error` says why there are none."""

    contestant: str
    work: str
    consumers: int
    round: int
    secs: float = 0.0
    batches_per_sec: float = 0.0
    slowest_per_sec: float = 0.0
    gb_per_sec: float = 0.0
    producer_cpu_secs_per_gb: float = 0.0
    consumer_cpu_secs_per_gb: float = 0.0
    batch_bytes: int = 0
    ring_bytes: int = 0
    watchers_load: float = 0.0
    """CPUs that the watchers keep busy."""
    other_load: float = 0.0
    """CPUs that were busy with something else in the meantime."""
    error: str | None = None


@dataclass
class Window:
    """Counts and CPU times of the processes between two moments, seen from outside."""

    processes: TrialProcesses
    secs: float
    of_groups: bool = False
    """Whether what a process has started counts as its own."""
    counts: dict[int, int] = field(default_factory=dict)
    cpu_secs: dict[int, float] = field(default_factory=dict)
    other_load: float = 0.0

    def observe(self) -> Window:
        found = self.processes.all
        busy = _busy_secs()
        began = time.perf_counter()
        counts = {a.slot: self.processes.counters.count(a.slot) for a in found}
        cpu = {a.slot: self._cpu_secs(a) for a in found}
        time.sleep(self.secs)
        for process in found:
            self.counts[process.slot] = (
                self.processes.counters.count(process.slot) - counts[process.slot]
            )
        self.secs = time.perf_counter() - began
        for process in found:
            self.cpu_secs[process.slot] = self._cpu_secs(process) - cpu[process.slot]
        others = _busy_secs() - busy - sum(self.cpu_secs.values())
        self.other_load = max(0.0, others / self.secs)
        self.processes.check()
        return self

    def _cpu_secs(self, process: TrialProcess) -> float:
        return process.group_cpu_secs() if self.of_groups else process.cpu_secs()


def _busy_secs() -> float:
    """CPU-seconds that all CPUs together have spent on anything, or were kept from spending."""
    with open("/proc/stat") as stat:
        ticks = [int(number) for number in stat.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / 100


def run(contestant: Contestant, setup: TrialSetup, *, secs: float, round: int) -> Trial:
    """Measures once; never raises for what a contestant does."""
    secs = max(secs, contestant.least_secs)
    named = Trial(contestant.name, setup.work, setup.consumers, round)
    try:
        with TrialProcesses(limit_secs=_WARM_UP_SECS + secs + _EXTRA_LIFE_SECS) as processes:
            contestant.start(processes, setup)
            warm = contestant.warm_batches
            processes.wait_for_counts("consumer", warm, timeout_secs=_WARM_UP_SECS)
            time.sleep(_SETTLE_SECS)
            return _evaluate(named, setup, processes, Window(processes, secs).observe())
    except TrialFailed as failure:
        return Trial(**{**asdict(named), "error": str(failure)})


def _evaluate(named: Trial, setup: TrialSetup, processes: TrialProcesses, window: Window) -> Trial:
    consumers = [process.slot for process in processes.with_role("consumer")]
    producers = [process.slot for process in processes.with_role("producer")]
    taken = [window.counts[slot] for slot in consumers]
    watching = (
        sum(processes.counters.noted(process.slot) for process in processes.with_role("watcher"))
        / 1e6
    )
    size = batch_bytes(setup.batches[0])
    gb_each = statistics.mean(taken) * size / 1e9
    if gb_each == 0:
        raise TrialFailed(f"no batch in {window.secs:.1f} s")
    return Trial(
        named.contestant,
        named.work,
        named.consumers,
        named.round,
        secs=window.secs,
        batches_per_sec=statistics.mean(taken) / window.secs,
        slowest_per_sec=min(taken) / window.secs,
        gb_per_sec=gb_each / window.secs,
        producer_cpu_secs_per_gb=sum(window.cpu_secs[slot] for slot in producers) / gb_each,
        consumer_cpu_secs_per_gb=statistics.mean(window.cpu_secs[slot] for slot in consumers)
        / gb_each,
        batch_bytes=size,
        ring_bytes=processes.counters.noted(producers[0]) if producers else setup.ring_bytes,
        watchers_load=watching,
        other_load=max(0.0, window.other_load - watching),
    )


def chosen(trials: Iterable[Trial], contestant: str, consumers: int, work: str) -> dict[int, Trial]:
    """Pick the trials of one contestant in one setting that went well, by round."""
    return {
        trial.round: trial
        for trial in trials
        if (trial.contestant, trial.consumers, trial.work) == (contestant, consumers, work)
        and trial.error is None
    }


def median(
    trials: dict[int, Trial], number: Callable[[Trial], float] = lambda t: t.batches_per_sec
) -> float | None:
    return statistics.median(map(number, trials.values())) if trials else None


def ratio(
    ours: dict[int, Trial],
    theirs: dict[int, Trial],
    number: Callable[[Trial], float] = lambda t: t.batches_per_sec,
    below: Callable[[Trial], float] | None = None,
) -> float | None:
    """Form the ratio within each round, and take the median of those."""
    below = below or number
    paired = [
        number(ours[r]) / below(theirs[r]) for r in ours.keys() & theirs.keys() if below(theirs[r])
    ]
    return statistics.median(paired) if paired else None


def progress(text: str) -> None:
    """Say on one line of the terminal what is under way; nothing where stderr isn't one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
