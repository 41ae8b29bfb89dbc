"""Clocks that jump.

The wall clock can't be set without setting it for the whole machine: that it isn't used is shown by
reading the code. What can be tried is a server and a consumer whose monotonic clocks are ten days
apart (a time namespace): nothing that passes between them may be a moment.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import feedline
from conftest import Start
from support import roles
from support.loaders import Numbered
from support.processes import Child
from support.reading import expected, read

ROOT = Path(__file__).parents[2]
WALL_CLOCK = re.compile(r"SystemTime|CLOCK_REALTIME|\btime\.time\(|datetime\.now|Realtime\b")
# Where a moment is written down for people to read, and nothing waits for it: how often.
WRITTEN_DOWN = {
    "crates/feedline-cli/src/dashboard/timeline.rs": 1,
    "crates/feedline-core/src/metrics/json_lines.rs": 1,
    # Compared with files' times, which are of that clock.
    "python/feedline/_identity/sources.py": 1,
}
DAYS_APART = 10


def test_no_deadline_follows_the_wall_clock() -> None:
    # The demo measures nothing by it either.
    sources = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/feedline/**/*.py")]
    assert len(sources) > 30
    found: dict[str, list[str]] = {}
    for path in sources:
        for line in path.read_text().splitlines():
            if WALL_CLOCK.search(line) and not line.startswith("use "):
                found.setdefault(str(path.relative_to(ROOT)), []).append(line.strip())
    assert {file: len(lines) for file, lines in found.items()} == WRITTEN_DOWN, found


@pytest.fixture
def clock_apart() -> list[str]:
    """A prefix that runs a command with a monotonic clock ten days ahead."""
    secs = str(DAYS_APART * 86_400)
    prefix = ["unshare", "--time", "--monotonic", secs, "--boottime", secs]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    return prefix


def test_clocks_that_are_days_apart(start: Start, clock_apart: list[str]) -> None:
    """A consumer in another time namespace, and then a server."""
    with feedline.Server(Numbered(1000, 10), "train", epochs=2, ring=60, wait_for=2):
        consumer = start(roles.consume, prefix=clock_apart, epochs=2, batch_size=7)
        with feedline.attach("train", batch_size=16) as feed:
            assert [read(feed), read(feed)] == [expected(epoch, 1000, 16) for epoch in (0, 1)]
        _check(consumer)
    server = start(
        roles.serve, prefix=clock_apart, loader_args=[1000, 10], epochs=2, ring=60, wait_for=2
    )
    server.expect("ready")
    consumer = start(roles.consume, epochs=2, batch_size=7)
    with feedline.attach("train", batch_size=16) as feed:
        assert [read(feed), read(feed)] == [expected(epoch, 1000, 16) for epoch in (0, 1)]
    _check(consumer)
    server.expect("done")


def _check(consumer: Child) -> None:
    consumer.expect("attached")
    for epoch in range(2):
        report = consumer.expect("epoch")
        assert report["keys"] == expected(epoch, 1000, 7).keys
        assert report["exact"]
    consumer.expect("done")
