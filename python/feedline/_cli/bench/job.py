"""A job that takes batches and does nothing with them: ``python -m feedline._cli.bench.job``.

Gets ``{"loader", "args"}`` or ``{"feed", "batch_size"}`` as JSON. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from time import monotonic
from typing import Any

from feedline._cli.bench.batches import endless, renewable, samples_in
from feedline._cli.bench.reporting import Reporter, run_role
from feedline._measurement.end_signal import is_told_to_end

# How often a job reports its batches: this costs nothing even beside the fastest loader.
_REPORT_SECS = 0.02


def _batches(options: dict[str, Any]) -> Iterator[Any]:
    if "feed" in options:
        import feedline

        # The author of the loader runs its objects in this process anyway.
        feed = feedline.attach(
            options["feed"],
            batch_size=options["batch_size"],
            timeout_secs=options["timeout_secs"],
            allow_pickle=True,
        )
        return endless(feed)
    from feedline._cli.maker import make

    return endless(renewable(lambda: make(options["loader"], options["args"])))


def _take(reporter: Reporter) -> None:
    samples, reported = 0, 0.0
    for batches, batch in enumerate(_batches(json.loads(sys.argv[1])), 1):
        samples += samples_in(batch)
        now = monotonic()
        if now - reported >= _REPORT_SECS:
            reported = now
            reporter.send(at=now, samples=samples, batches=batches)
            if is_told_to_end():
                return


if __name__ == "__main__":
    run_role(_take)
