"""The feed's process: the same loader, once, for all jobs.

    python -m feedline.demo.server FOLDER BATCH_SIZE JOBS

Ends when its standard input does, so it can't outlive the demo.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import feedline

from .images import make_loader
from .job import FEED_NAME


def main() -> None:
    folder, batch_size, jobs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with feedline.Server(make_loader(folder, batch_size), FEED_NAME, wait_for=jobs):
        # Not sys.stdin.read(): the loader forks, and its workers can't close a stream that is being
        # read from at that moment.
        os.read(0, 1)


if __name__ == "__main__":
    main()
