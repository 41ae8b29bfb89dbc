"""The demo's steps: make the data, run a loader in each job, run one feed for all, show both."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from feedline._cli.failure import CommandFailedError, report, say
from feedline._measurement.children import ChildFailedError
from feedline._measurement.comparison import Comparison
from feedline._measurement.measurement import TooSlowError, disturbance, stages
from feedline._measurement.progress import Progress

from .half import Half, loader_each, one_feed

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

    Returns the number of cores to run on.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def measure(jobs: int, secs: float, images: int, folder: Path) -> tuple[Half, Half]:
    # Not at the top: it needs torch and Pillow, and `run` says so better than an ImportError.
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


def comparison(alone: Half, shared: Half) -> Comparison:
    rows = Comparison(LOADER_EACH, ONE_FEED)
    rates = zip(alone.part.samples_per_sec, shared.part.samples_per_sec, strict=True)
    for number, (job, pair) in enumerate(zip(alone.jobs, rates, strict=True), 1):
        rows.gain(f"samples/s of job {number}, batch size {job.batch_size}", *pair)
    rows.gain("samples/s of a job, on average", alone.part.mean, shared.part.mean)
    rows.blank()
    rows.costs(alone.part, shared.part)
    rows.plain("training loss reached", "{:.2f}", alone.loss, shared.loss)
    return rows


def exactness(shared: Half, images: int) -> str:
    wrong = [str(number) for number, job in enumerate(shared.jobs, 1) if not job.exact]
    if wrong:
        return f"WRONG: on the feed, samples were lost or came twice in job {', '.join(wrong)}"
    epochs = sum(job.epochs for job in shared.jobs)
    return (
        f"Checked: on the feed, each job got each of the {images:,} images exactly once per epoch\n"
        f"({epochs} whole epochs in all), at its own batch size, from one decode."
    )


def run(jobs: int, seconds: float, images: int, cores: int, json: bool) -> int:
    """`feedline demo`: the exit code."""
    # A plain `kill` unwinds like Ctrl-C, so that the children and the folder go too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_needs()
        cores = pin(cores)
        if not json:
            print(f"Training jobs: {jobs}, on {images:,} JPEGs and {cores} CPU cores.")
            print("First each has a DataLoader of its own, then all are on one feed.", flush=True)
        with tempfile.TemporaryDirectory(prefix="feedline-demo-") as folder:
            alone, shared = measure(jobs, seconds, images, Path(folder))
    except CommandFailedError as error:
        return report(error)
    except TooSlowError as error:
        return report(CommandFailedError(str(error)))
    except ChildFailedError as error:
        way_out = "see what this machine lacks with: feedline doctor"
        return report(CommandFailedError(f"the demo failed: {error}\n  {way_out}"))
    except KeyboardInterrupt:
        say("stopped: all jobs ended, nothing left behind")
        return 130
    if json:
        print_json(alone, shared, images, cores)
    else:
        print_text(alone, shared, images)
    return 0 if all(job.exact for job in shared.jobs) else 1


def check_needs() -> None:
    missing = [package for module, package in NEEDS.items() if not importlib.util.find_spec(module)]
    if missing:
        raise CommandFailedError(
            f"the demo needs {' and '.join(missing)}\n"
            f"  {sys.executable} -m pip install {' '.join(missing)}"
        )


def print_json(alone: Half, shared: Half, images: int, cores: int) -> None:
    document = {
        "jobs": len(alone.jobs),
        "images": images,
        "cores": cores,
        "loader_each": alone.as_json(),
        "one_feed": shared.as_json(),
        "speed_ratio": shared.part.mean / alone.part.mean,
        "cpu_ratio": shared.part.cpu_secs_per_1000 / alone.part.cpu_secs_per_1000,
        "exact": all(job.exact for job in shared.jobs),
    }
    print(json.dumps(document, indent=2), flush=True)


def print_text(alone: Half, shared: Half, images: int) -> None:
    print(f"\n{comparison(alone, shared)}\n")
    if note := disturbance({LOADER_EACH: alone.part, ONE_FEED: shared.part}):
        print(f"{note}\n")
    print(exactness(shared, images))
    print(f"\n{WHAT_CHANGED}")
