"""The process that loads for all jobs: ``python -m feedline._cli.bench.server``.

Gets ``{"loader", "args", "feed", "jobs", "whole_batches"}`` as JSON. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from time import monotonic

import feedline
from feedline._cli.bench.batches import renewable
from feedline._cli.bench.speech import Speech, play, told_to_end
from feedline._cli.maker import make

_REPORT_SECS = 0.1


def _serve(speech: Speech) -> None:
    options = json.loads(sys.argv[1])
    loader = renewable(lambda: make(options["loader"], options["args"]))
    server = feedline.Server(
        loader,
        options["feed"],
        wait_for=options["jobs"],
        whole_batches=options["whole_batches"],
        allow_pickle=True,
    )
    with server:
        while not told_to_end(_REPORT_SECS):
            stats = server.stats()
            speech.say(at=monotonic(), samples=stats["samples"], batches=stats["batches"])
            if stats["state"] not in ("starting", "running"):
                server.wait()
                return


if __name__ == "__main__":
    play(_serve)
