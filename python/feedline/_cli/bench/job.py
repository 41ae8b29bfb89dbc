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
from feedline._cli.bench.speech import Speech, play, told_to_end

# How often a job that has a batch says so: what costs it nothing beside the fastest loader.
_REPORT_SECS = 0.02


def _batches(options: dict[str, Any]) -> Iterator[Any]:
    if "feed" in options:
        import feedline

        # Whoever wrote the loader has let its objects into this process already.
        feed = feedline.attach(
            options["feed"],
            batch_size=options["batch_size"],
            timeout_secs=options["timeout_secs"],
            allow_pickle=True,
        )
        return endless(feed)
    from feedline._cli.maker import make

    return endless(renewable(lambda: make(options["loader"], options["args"])))


def _take(speech: Speech) -> None:
    samples, reported = 0, 0.0
    for batches, batch in enumerate(_batches(json.loads(sys.argv[1])), 1):
        samples += samples_in(batch)
        now = monotonic()
        if now - reported >= _REPORT_SECS:
            reported = now
            speech.say(at=now, samples=samples, batches=batches)
            if told_to_end():
                return


if __name__ == "__main__":
    play(_take)
