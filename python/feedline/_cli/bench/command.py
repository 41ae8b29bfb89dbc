"""Runs the steps, prints the result, returns the exit code."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedline._cli.bench.measurements import Measurements, Plan, measure_all
from feedline._cli.bench.verdict import Saving, Verdict, judge, saving, unsteadiness
from feedline._cli.failure import CommandFailedError, report, say
from feedline._cli.maker import alone
from feedline._measurement.children import ChildFailedError
from feedline._measurement.comparison import Comparison
from feedline._measurement.measurement import TooSlowError, disturbance

# Importing torch takes seconds of a core for each job.
_START_SECS, _START_SECS_PER_JOB = 60.0, 4.0
# A socket's path has 107 bytes.
_LONGEST_FOLDER = 80


def run(
    *,
    maker: dict[str, Any],
    jobs: int,
    batch_size: int | None,
    seconds: float,
    price_per_hour: float | None,
    json: bool,
) -> int:
    """Measure, print, and return the exit code."""
    plan = Plan(
        maker["loader"],
        maker["args"],
        jobs,
        batch_size,
        seconds,
        _START_SECS + jobs * _START_SECS_PER_JOB,
    )
    # A plain `kill` unwinds like Ctrl-C, so that the children and the folder go too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _folder() as folder:
            parts = measure_all(plan, folder)
    except KeyboardInterrupt:
        say("stopped: all jobs ended, nothing left behind")
        return 130
    except CommandFailedError as error:
        return report(error)
    except TooSlowError as error:
        return report(CommandFailedError(str(error)))
    except ChildFailedError as error:
        failure = CommandFailedError(_words(error, plan))
        failure.exit_code = error.result.get("exit_code", 1)
        return report(failure)
    verdict = judge(parts)
    saved = None if price_per_hour is None else saving(parts, verdict, price_per_hour)
    with contextlib.suppress(BrokenPipeError):
        if json:
            _print_json(plan, parts, verdict, saved)
        else:
            _print_text(plan, parts, verdict, saved)
        return 0
    # Python would report it again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Everything that the processes make is in it, and goes with it."""
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="feedline-bench-",
        dir=parent if len(os.fsencode(parent)) < _LONGEST_FOLDER - 24 else "/tmp",
        # A killed process may be about to write.
        ignore_cleanup_errors=True,
    ) as folder:
        yield Path(folder)


def _words(error: ChildFailedError, plan: Plan) -> str:
    """What the child has reported, or how it ended."""
    if not error.result:
        fewer = "\n  or with fewer --jobs" if plan.jobs > 1 else ""
        return f"{error}\n  try it alone: {alone(plan.loader, plan.args)}{fewer}"
    if error.result["kind"] == "BatchSizeError":
        what, _, _ = str(error).partition("\n")
        return f"{what}\n  leave out --batch-size, for the loader's own batches"
    return str(error)


def _print_json(plan: Plan, parts: Measurements, verdict: Verdict, saved: Saving | None) -> None:
    each, shared = parts.each, parts.shared
    rounds = {"samples_per_sec_mean_of_rounds": [part.mean for part in parts.rounds]}
    document = {
        "loader": plan.loader,
        "args": plan.args,
        "jobs": plan.jobs,
        "batch_size": plan.batch_size,
        "seconds": plan.secs,
        "alone": parts.alone.as_json(),
        "loader_each": each.as_json() | rounds,
        "one_feed": shared.as_json(),
        "speed_ratio": shared.mean / each.mean,
        "cpu_ratio": shared.cpu_secs_per_1000 / each.cpu_secs_per_1000,
        "saving": None if saved is None else saved.as_json(),
        "verdict": verdict._asdict(),
    }
    print(json.dumps(document, indent=2), flush=True)


def _print_text(plan: Plan, parts: Measurements, verdict: Verdict, saved: Saving | None) -> None:
    columns = dict(zip(plan.names, (parts.alone, parts.each, parts.shared), strict=True))
    comparison = Comparison(*columns)
    all_parts = columns.values()
    comparison.gain("samples/s of a job, on average", *(part.mean for part in all_parts))
    comparison.gain("samples/s of the slowest job", *(part.slowest for part in all_parts))
    comparison.gain("samples/s of all jobs", *(part.total for part in all_parts))
    comparison.blank()
    comparison.costs(*all_parts)
    print(f"{comparison}\n")
    for note in (disturbance(columns), unsteadiness(parts)):
        if note is not None:
            print(note)
    print(verdict.text)
    if saved is not None:
        print(saved.text)
    size = "" if plan.batch_size is None else f", {plan.batch_size} samples at a time on the feed"
    print(
        f"Counted as {parts.alone.samples_per_batch:.4g} samples a batch of the loader.\n"
        f"The jobs only took batches{size}: jobs that compute too gain this much at most.",
        flush=True,
    )
