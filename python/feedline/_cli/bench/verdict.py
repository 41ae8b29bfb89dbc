"""What the measured numbers mean, in words and in money. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from feedline._cli.bench.measurements import Measurements
from feedline._measurement.comparison import times

# At 1,000 samples/s, a loader that needs less of a core than this is no burden.
_CHEAP_SHARE = 0.02
# How much two runs of the same may differ.
_NOISE = 0.1


class Verdict(NamedTuple):
    """``kind``: "faster", "less-cpu", "slower" or "nothing"."""

    kind: str
    text: str


class Saving(NamedTuple):
    """In the currency of the price."""

    per_hour: float
    text: str

    def as_json(self) -> dict[str, Any]:
        return {"saved_per_machine_hour": self.per_hour, "text": self.text}


def unsteadiness(parts: Measurements) -> str | None:
    """Say so if the two rounds of the same differ by more than noise."""
    before, after = (part.mean for part in parts.rounds)
    if max(before, after) < (1 + 2 * _NOISE) * min(before, after):
        return None
    return (
        f"Note: with a loader each, a job loaded {before:,.0f} samples/s at first and {after:,.0f} "
        "after the feed's turn:\nstorage is still being cached, or the machine is not quiet. "
        "Measure again, or longer."
    )


def judge(parts: Measurements) -> Verdict:
    """Say what sharing brings. A speed between the two rounds' is neither faster nor slower."""
    each, shared = parts.each, parts.shared
    means = [part.mean for part in parts.rounds]
    is_faster = shared.mean > (1 + _NOISE) * max(means)
    is_slower = shared.mean < (1 - _NOISE) * min(means)
    jobs, speed = each.jobs, times(shared.mean / each.mean)
    cpu = shared.cpu_secs_per_1000 / each.cpu_secs_per_1000
    share = parts.alone.cpu_secs_per_1000
    cost = f"loading costs {_percent(share)} of a core for each 1,000 samples/s of a job"
    slowdown = f"each job would load only {speed} as fast"
    if share < _CHEAP_SHARE:
        # With cores to spare, jobs wait for something else, and on one feed they wait only once.
        if is_faster and not each.is_crowded:
            return Verdict(
                "faster",
                f"{jobs} jobs load {speed} as fast each: they share what they wait for "
                f"(storage, network); {cost}.",
            )
        but = f"; on one feed {slowdown}" if is_slower else ""
        return Verdict("nothing", f"Nothing to gain: {cost}{but}.")
    if is_slower:
        way_out = "keep a loader each" if cpu >= 1 else "share it only if that is fast enough"
        return Verdict(
            "slower",
            f"On one feed {slowdown} ({shared.mean:,.0f} samples/s), for {_percent(cpu)} of the "
            f"CPU: {way_out}.",
        )
    needs = f"{jobs} jobs need {_percent(cpu)} of the CPU they need now"
    if is_faster:
        return Verdict("faster", f"{needs}, and each can load {speed} as fast.")
    if cpu < 1 - _NOISE:
        return Verdict(
            "less-cpu",
            f"{needs}; they don't load faster ({speed}): it is not the CPU they lack.",
        )
    return Verdict(
        "nothing",
        f"Nothing to gain: on one feed, jobs load {speed} as fast, for {_percent(cpu)} of the CPU.",
    )


def _percent(share: float) -> str:
    percent = 100 * share
    return "less than 0.1 %" if percent < 0.1 else f"{percent:.{1 if percent < 10 else 0}f} %"


def saving(parts: Measurements, verdict: Verdict, price_per_hour: float) -> Saving:
    """What the verdict is worth: more samples in the same hour, or cores for something else."""
    each, shared = parts.each, parts.shared
    if verdict.kind == "faster":

        def per_million(total: float) -> float:
            return price_per_hour / 3600 / total * 1_000_000

        per_hour = price_per_hour * (1 - each.total / shared.total)
        return Saving(
            per_hour,
            f"1,000,000 samples cost {per_million(shared.total):.4g} instead of "
            f"{per_million(each.total):.4g}, if nothing but loading keeps the machine busy: that "
            f"saves up to {per_hour:.2f} in each hour.",
        )
    if verdict.kind == "less-cpu":
        freed = each.cores * (1 - shared.cpu_secs_per_1000 / each.cpu_secs_per_1000)
        per_hour = price_per_hour * freed / each.all_cores
        return Saving(
            per_hour,
            f"At the same speed that frees {freed:.1f} of {each.all_cores:g} cores, worth up to "
            f"{per_hour:.2f} in each hour to whatever can use them.",
        )
    return Saving(0.0, "No money to save.")
