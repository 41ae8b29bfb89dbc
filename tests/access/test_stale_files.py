"""What killed servers left goes when a process reads the folder; what is owned stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import feedline
from conftest import Start
from sharing.test_runs import kill
from support.child import hear, say
from support.processes import Report
from support.share_scripts import ids, numbers

pytestmark = pytest.mark.timeout(120, method="thread")


def serve() -> None:
    with feedline.Server([np.arange(3)], "by-hand"):
        say("serving")
        hear()


def share(printed: str = "", reconnect_secs: float = 0.0) -> None:
    def make_loader() -> object:
        print(printed, end="")
        return numbers()

    with feedline.share(
        make_loader, "shared", batch_size=7, linger_secs=None, reconnect_secs=reconnect_secs
    ) as feed:
        next(iter(feed))
        say("reading", server=feed.stats()["server_pid"])
        hear()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def list_feeds() -> None:
    assert feedline.feeds() == []


def list_by_command() -> None:
    subprocess.run([sys.executable, "-m", "feedline", "ls"], check=True, capture_output=True)


def serve_another() -> None:
    with feedline.Server([np.arange(3)], "other"):
        pass


def fail_to_find_one() -> None:
    with pytest.raises(feedline.FeedNotFoundError):
        feedline.attach("nowhere", timeout_secs=0.0)


READERS: list[Callable[[], None]] = [list_feeds, list_by_command, serve_another, fail_to_find_one]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_whoever_looks_removes_what_was_left(
    read: Callable[[], None], start: Start, folder: Path
) -> None:
    server, job = start(serve), start(share)
    server.expect("serving")
    shared = job.expect("reading")["server"]
    feedline.feeds()
    left = set(names(folder))
    assert {"by-hand.sock", "by-hand.lock", "shared.share", "shared.log", "shared.sock"} < left
    for process in (server, job):
        process.kill()
    kill(shared)
    assert len(names(folder)) >= 8
    read()
    assert names(folder) == []


def test_a_log_that_says_something_stays_until_the_feed_is_started_again(
    start: Start, folder: Path
) -> None:
    job = start(share, printed="the loader says hello\n")
    server = job.expect("reading")["server"]
    job.kill()
    kill(server)
    for _ in range(2):
        feedline.feeds()
        assert names(folder) == ["shared.log", "shared.share"]
    assert (folder / "shared.log").read_text() == "the loader says hello\n"
    with feedline.share(numbers, "shared", batch_size=7, linger_secs=0.1) as feed:
        assert (folder / "shared.log").read_text() == ""
        ids(feed)
        kill(feed.stats()["server_pid"])
    feedline.feeds()


def test_a_run_stays_while_somebody_may_come_back(start: Start, folder: Path) -> None:
    job = start(share, reconnect_secs=60.0)
    server = job.expect("reading")["server"]
    kill(server)
    feedline.feeds()
    # It may have been killed while it wrote.
    suffixes = {name.rpartition(".")[2] for name in names(folder)} - {"rng-new"}
    assert suffixes == {"rng", "run", "log", "share"}
    job.kill()
    feedline.feeds()
    assert names(folder) == []


def test_a_feed_that_is_being_started_is_left_alone(start: Start, folder: Path) -> None:
    """A process that reads the folder while many servers start removes none of their files."""
    jobs = [start(share) for _ in range(3)]
    reports: list[Report] = []
    while len(reports) < len(jobs):
        feedline.feeds()
        reports += [report for job in jobs for report in job.said()]
    assert [report["event"] for report in reports] == ["reading"] * len(jobs), reports
    servers = {report["server"] for report in reports}
    assert len(servers) == 1
    for job in jobs:
        job.kill()
    kill(servers.pop())
    feedline.feeds()
    assert names(folder) == []
