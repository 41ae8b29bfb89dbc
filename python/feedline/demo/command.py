"""The order of events: make the data, run a loader in each job, run one feed for all, show both."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from feedline._cli.failure import CommandFailedError, report
from feedline._fleet.screen import Progress, table

if TYPE_CHECKING:
    from .half import Half

NEEDS = {"torch": "torch", "PIL": "pillow"}
LOADER_EACH, ONE_FEED = "a loader each", "one feed"
WHAT_CHANGED = """\
What changed in each job:
  - batches = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
  + batches = feedline.attach("demo", batch_size=64)
and, once, in a process of its own:
  + feedline.serve(DataLoader(dataset, ...), "demo")

Loading is the bottleneck here, as it is for a GPU that waits for its CPU. Where it isn't,
expect the CPU time to fall rather than the speed to rise."""
# For the bar only.
EXPECTED_IMAGES_PER_SEC = 120.0


def pin(cores: int) -> int:
    """Keep this process and its children to some cores, so that the CPU is scarce on any machine.

    Gives the number of cores that there are to run on.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def measure(jobs: int, secs: float, images: int, folder: Path) -> tuple[Half, Half]:
    # Not at the top: these need torch and Pillow, and `run` says so better than an ImportError.
    from .half import loader_each, one_feed, stages
    from .images import make_images

    making = f"making {images:,} JPEGs"
    progress = Progress(
        {making: images / EXPECTED_IMAGES_PER_SEC}
        | stages(LOADER_EACH, secs)
        | stages(ONE_FEED, secs)
    )
    try:
        progress.enter(making)
        for made in make_images(folder, images):
            progress.show(made / images)
        return (
            loader_each(LOADER_EACH, jobs, secs, folder, progress),
            one_feed(ONE_FEED, jobs, secs, folder, progress),
        )
    finally:
        progress.clear()


def comparison(alone: Half, shared: Half) -> str:
    """Draw the table."""
    rows: list[tuple[str, ...]] = [("", LOADER_EACH, ONE_FEED, "ratio", "")]

    def gain(title: str, before: float, after: float) -> None:
        rates = (f"{rate:,.0f} samples/s" for rate in (before, after))
        rows.append((title, *rates, f"{after / before:.1f}x", ""))

    def cost(title: str, form: str, before: float, after: float) -> None:
        values = form.format(before), form.format(after)
        ratio, word = (before / after, "less") if after <= before else (after / before, "more")
        rows.append((title, *values, f"{ratio:.1f}x", word))

    for number, (before, after) in enumerate(zip(alone.jobs, shared.jobs, strict=True), 1):
        gain(f"job {number}, batch size {before.batch_size}", before.rate, after.rate)
    gain("each job, on average", alone.rate, shared.rate)
    rows.append(())
    cpu_secs = alone.cpu_secs_per_1000, shared.cpu_secs_per_1000
    cost("CPU-seconds per 1,000 samples", "{:.2f}", *cpu_secs)
    megabytes = alone.memory_bytes / 1e6, shared.memory_bytes / 1e6
    cost("memory of all processes", "{:,.0f} MB", *megabytes)
    cost("processes", "{}", alone.processes, shared.processes)
    rows.append(("training loss reached", f"{alone.loss:.2f}", f"{shared.loss:.2f}", "", ""))
    return table(rows)


def disturbance(alone: Half, shared: Half, cores: int) -> str | None:
    """Say so if the jobs didn't have the cores to themselves: then speeds can't be compared."""
    for half, name in ((alone, LOADER_EACH), (shared, ONE_FEED)):
        if half.cores_used < 0.75 * cores:
            return (
                f"Note: with {name}, the jobs got only {half.cores_used:.1f} of {cores} cores.\n"
                "If something else was running, the CPU-seconds hold, but the speeds don't."
            )
    return None


def exactness(shared: Half, images: int) -> str:
    wrong = [str(number) for number, job in enumerate(shared.jobs, 1) if not job.exact]
    if wrong:
        return f"WRONG: on the feed, samples were lost or came twice in job {', '.join(wrong)}"
    epochs = sum(job.epochs for job in shared.jobs)
    return (
        f"Checked: on the feed, each job got each of the {images:,} images exactly once per epoch\n"
        f"({epochs} whole epochs in all), at its own batch size, from one decode."
    )


def run(jobs: int, seconds: float, images: int, cores: int) -> int:
    """`feedline demo`: the exit code."""
    try:
        check_needs()
        return show(jobs, seconds, images, pin(cores))
    except CommandFailedError as error:
        return report(error)
    except KeyboardInterrupt:
        print("stopped: all jobs ended, nothing left behind", file=sys.stderr)
        return 130


def check_needs() -> None:
    missing = [package for module, package in NEEDS.items() if not importlib.util.find_spec(module)]
    if missing:
        raise CommandFailedError(
            f"the demo needs {' and '.join(missing)}\n"
            f"  {sys.executable} -m pip install {' '.join(missing)}"
        )


def show(jobs: int, secs: float, images: int, cores: int) -> int:
    from feedline._fleet.children import ChildFailedError

    # A plain `kill` unwinds like Ctrl-C, so that the children and the folder go too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"Training jobs: {jobs}, on {images:,} JPEGs and {cores} CPU cores.")
    print("First each has a DataLoader of its own, then all are on one feed.", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="feedline-demo-") as folder:
            alone, shared = measure(jobs, secs, images, Path(folder))
    except ChildFailedError as error:
        raise CommandFailedError(
            f"the demo failed: {error}\n  see what this machine lacks with: feedline doctor"
        ) from None
    print()
    print(comparison(alone, shared))
    print()
    if note := disturbance(alone, shared, cores):
        print(f"{note}\n")
    print(exactness(shared, images))
    print()
    print(WHAT_CHANGED)
    return 0 if all(job.exact for job in shared.jobs) else 1
