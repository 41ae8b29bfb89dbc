"""What tests of share() have in common: a loader, and scripts that are started several times."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import feedline

SAMPLES = 60


def run_script(path: Path, text: str, copies: int = 1, args: tuple[str, ...] = ()) -> list[Any]:
    """Run a script several times at once, and give the JSON that each one prints last."""
    path.write_text(textwrap.dedent(text))
    jobs = [
        subprocess.Popen([sys.executable, str(path), *args], text=True, stdout=subprocess.PIPE)
        for _ in range(copies)
    ]
    outputs = [job.communicate(timeout=90)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * copies, outputs
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def numbers() -> list[Any]:
    return [np.arange(first, first + 12) for first in range(0, SAMPLES, 12)]


def ids(feed: feedline.Feed) -> list[int]:
    return [int(i) for batch in feed for i in batch]
