"""The order of events, what is printed, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedline._cli.bench.parts import Part, Plan, TooSlowError, loader_each, one_feed, stages
from feedline._cli.bench.verdict import Saving, Verdict, disturbance, judge, saving
from feedline._cli.failure import CommandFailedError, report, say
from feedline._fleet.children import ChildFailedError
from feedline._fleet.screen import Progress, table

# Importing torch takes seconds of a core for each job.
_START_SECS, _START_SECS_PER_JOB = 60.0, 4.0
# A socket's path has 107 bytes.
_LONGEST_FOLDER = 80

Parts = tuple[Part, Part, Part]


def run(
    *,
    maker: dict[str, Any],
    jobs: int,
    batch_size: int | None,
    seconds: float,
    price_per_hour: float | None,
    json: bool,
) -> int:
    """Measure, and print: the exit code."""
    plan = Plan(
        maker["loader"],
        maker["args"],
        batch_size,
        seconds,
        _START_SECS + jobs * _START_SECS_PER_JOB,
    )
    # A plain `kill` unwinds like Ctrl-C, so that the children and the folder go too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _folder() as folder:
            parts = _three_parts(jobs, plan, folder)
    except KeyboardInterrupt:
        say("stopped: all jobs ended, nothing left behind")
        return 130
    except CommandFailedError as error:
        return report(error)
    except TooSlowError as error:
        return report(CommandFailedError(str(error)))
    except ChildFailedError as error:
        is_size = error.result.get("kind") == "BatchSizeError"
        failure = CommandFailedError(
            f"{error}\n  or leave out --batch-size" if is_size else str(error)
        )
        failure.exit_code = error.result.get("exit_code", 1)
        return report(failure)
    saved = None if price_per_hour is None else saving(parts[1], parts[2], price_per_hour)
    verdict = judge(*parts)
    with contextlib.suppress(BrokenPipeError):
        if json:
            _print_json(plan, parts, verdict, saved)
        else:
            _print_text(plan, parts, verdict, saved)
        return 0
    # Python would complain of it again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Everything that the processes make is in it, and goes with it."""
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="feedline-bench-",
        dir=parent if len(os.fsencode(parent)) < _LONGEST_FOLDER - 24 else "/tmp",
        # What is killed may be about to write.
        ignore_cleanup_errors=True,
    ) as folder:
        yield Path(folder)


def _three_parts(jobs: int, plan: Plan, folder: Path) -> Parts:
    names = _names(jobs)
    progress = Progress(
        {stage: secs for name in names for stage, secs in stages(name, plan.secs).items()},
        plain=False,
    )
    try:
        alone = loader_each(names[0], 1, plan, folder, progress)
        each = loader_each(names[1], jobs, plan, folder, progress)
        try:
            shared = one_feed(names[2], jobs, plan, folder, progress)
        except ChildFailedError as error:
            if error.result.get("kind") != "SchemaError":
                raise
            # Shapes that vary from batch to batch.
            shared = one_feed(names[2], jobs, plan, folder, progress, whole=True)
        return alone, each, shared
    finally:
        progress.clear()


def _names(jobs: int) -> tuple[str, str, str]:
    many = "1 job" if jobs == 1 else f"{jobs} jobs"
    return "one job alone", f"{many}, a loader each", f"{many}, one feed"


def _print_json(plan: Plan, parts: Parts, verdict: Verdict, saved: Saving | None) -> None:
    alone, each, shared = parts
    document = {
        "loader": plan.loader,
        "args": plan.args,
        "jobs": each.jobs,
        "batch_size": plan.batch_size,
        "seconds": plan.secs,
        "alone": alone.as_json(),
        "loader_each": each.as_json(),
        "one_feed": shared.as_json(),
        "speed_ratio": shared.mean / each.mean,
        "cpu_ratio": shared.cpu_secs_per_1000 / each.cpu_secs_per_1000,
        "saving": None if saved is None else saved.as_json(),
        "verdict": verdict._asdict(),
    }
    print(json.dumps(document, indent=2), flush=True)


def _print_text(plan: Plan, parts: Parts, verdict: Verdict, saved: Saving | None) -> None:
    print(_comparison(parts))
    print()
    if note := disturbance(dict(zip(_names(parts[1].jobs), parts, strict=True))):
        print(note)
    print(verdict.text)
    if saved is not None:
        print(saved.text())
    size = "" if plan.batch_size is None else f", {plan.batch_size} samples at a time on the feed"
    print(
        f"The jobs only took batches{size}: jobs that compute too gain this much at most.",
        flush=True,
    )


def _comparison(parts: Parts) -> str:
    alone, each, shared = parts
    rows: list[tuple[str, ...]] = [("", *_names(each.jobs), "ratio", "")]

    def gain(title: str, values: tuple[float, float, float]) -> None:
        ratio = values[2] / values[1]
        rows.append(
            (title, *(f"{value:,.{_digits(value)}f}" for value in values), _times(ratio), "")
        )

    def cost(title: str, form: str, values: tuple[float, float, float]) -> None:
        _, before, after = values
        if not (before and after):  # where the kernel doesn't tell
            return
        ratio, word = (before / after, "less") if after <= before else (after / before, "more")
        rows.append((title, *(form.format(value) for value in values), _times(ratio), word))

    gain("samples/s of a job, on average", (alone.mean, each.mean, shared.mean))
    gain("samples/s of the slowest job", (alone.slowest, each.slowest, shared.slowest))
    gain("samples/s of all jobs", (alone.total, each.total, shared.total))
    rows.append(())
    cpu = alone.cpu_secs_per_1000, each.cpu_secs_per_1000, shared.cpu_secs_per_1000
    cost("CPU-seconds per 1,000 samples", "{:.4g}", cpu)
    rows.append(("cores busy", *(f"{part.cores:.1f}" for part in parts), "", ""))
    memory = alone.memory_bytes / 1e6, each.memory_bytes / 1e6, shared.memory_bytes / 1e6
    cost("memory of all processes, MB", "{:,.0f}", memory)
    cost("processes", "{:.0f}", (alone.processes, each.processes, shared.processes))
    return table(rows)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 1 else 3
