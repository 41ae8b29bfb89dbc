"""The process that loads for all jobs: ``python -m feedline._cli.bench.server``.

Gets ``{"loader", "args", "feed", "jobs", "whole_batches"}`` as JSON. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from time import monotonic

import feedline
from feedline._cli.bench.batches import renewable
from feedline._cli.bench.reporting import Reporter, run_role
from feedline._cli.maker import make
from feedline._measurement.end_signal import is_told_to_end

_REPORT_SECS = 0.1


def _serve(reporter: Reporter) -> None:
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
        while not is_told_to_end(_REPORT_SECS):
            stats = server.stats()
            reporter.send(at=monotonic(), samples=stats["samples"], batches=stats["batches"])
            if stats["state"] not in ("starting", "running"):
                server.wait()
                return


if __name__ == "__main__":
    run_role(_serve)
