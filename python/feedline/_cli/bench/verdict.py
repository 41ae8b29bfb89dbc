"""From numbers to words, and to money. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from feedline._cli.bench.parts import Part

# At 1,000 samples/s, a loader that needs less of a core than this is no burden to anybody.
_CHEAP_SHARE = 0.02
# What two runs of the same may differ by.
_NOISE = 0.1


class Verdict(NamedTuple):
    """``kind``: "faster", "less-cpu" or "nothing"."""

    kind: str
    text: str


def disturbance(parts: dict[str, Part]) -> str | None:
    """Say so if others kept the machine busy: then speeds can't be compared."""
    for name, part in parts.items():
        if part.other_cores > _NOISE * part.all_cores and part.is_crowded:
            return (
                f"Note: with {name}, something else kept {part.other_cores:.1f} of the machine's "
                f"{part.all_cores} cores busy.\n"
                "The CPU-seconds hold, the speeds don't: measure again when it is quiet."
            )
    return None


class Saving(NamedTuple):
    """In the currency of the price."""

    per_million_each: float
    per_million_shared: float
    per_hour: float

    def text(self) -> str:
        """In words, for a machine that does nothing but load."""
        each, shared = f"{self.per_million_each:.4g}", f"{self.per_million_shared:.4g}"
        if self.per_hour <= 0:
            return f"No money to save: 1,000,000 samples cost {shared} on one feed, {each} now."
        return (
            f"1,000,000 samples cost {shared} instead of {each}: that saves up to "
            f"{self.per_hour:.2f} in each hour of the machine."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "per_1000000_samples_loader_each": self.per_million_each,
            "per_1000000_samples_one_feed": self.per_million_shared,
            "saved_per_machine_hour": self.per_hour,
        }


def judge(alone: Part, each: Part, shared: Part) -> Verdict:
    """Say what sharing brings."""
    jobs, speed = each.jobs, shared.mean / each.mean
    cpu = shared.cpu_secs_per_1000 / each.cpu_secs_per_1000
    share = alone.cpu_secs_per_1000
    cost = f"loading costs {_percent(share)} of a core for each 1,000 samples/s of a job"
    if share < _CHEAP_SHARE:
        # With cores to spare they wait for something else, and on one feed they wait once.
        if speed > 1 + _NOISE and not each.is_crowded:
            return Verdict(
                "faster",
                f"{jobs} jobs load {speed:.1f}x as fast each: they share what they wait for "
                f"(storage, network); {cost}.",
            )
        return Verdict("nothing", f"Nothing to gain: {cost}.")
    needs = f"{jobs} jobs need {_percent(cpu)} of the CPU they need now"
    if speed > 1 + _NOISE:
        return Verdict("faster", f"{needs}, and each can load {speed:.1f}x as fast.")
    if cpu < 1 - _NOISE:
        return Verdict(
            "less-cpu",
            f"{needs}; they don't load faster ({speed:.1f}x): it is not the CPU they lack.",
        )
    return Verdict(
        "nothing",
        f"Nothing to gain: on one feed, jobs load {speed:.1f}x as fast, "
        f"for {_percent(cpu)} of the CPU.",
    )


def _percent(share: float) -> str:
    percent = 100 * share
    return "less than 0.1 %" if percent < 0.1 else f"{percent:.{1 if percent < 10 else 0}f} %"


def saving(each: Part, shared: Part, price_per_hour: float) -> Saving:
    """What the same samples cost, if nothing but loading kept the machine busy."""

    def per_million(part: Part) -> float:
        return price_per_hour / 3600 / part.total * 1_000_000

    before, after = per_million(each), per_million(shared)
    return Saving(before, after, max(0.0, price_per_hour * (1 - after / before)))
