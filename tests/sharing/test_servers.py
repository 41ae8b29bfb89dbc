"""Servers of shared feeds that are killed, stopped, or kept by their loaders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.processes import processes_with
from support.share_scripts import SAMPLES, ids, numbers
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]


def test_a_loader_that_hangs_does_not_keep_a_server_that_was_told_to_stop(folder: Path) -> None:
    with feedline.share(hangs, "train", linger_secs=0.1) as feed:
        next(iter(feed))
        os.kill(feed.stats()["server_pid"], signal.SIGTERM)
    eventually(lambda: not processes_with(str(folder)))


def hangs() -> Iterator[Any]:
    yield np.arange(4)
    threading.Event().wait()


def forks_and_waits() -> list[Any]:
    if os.fork() == 0:
        signal.pause()
    print("making the loader")
    signal.pause()
    return numbers()


def test_children_of_a_loader_do_not_hold_the_lock(folder: Path) -> None:
    with pytest.raises(feedline.StalledError):
        feedline.share(forks_and_waits, "train", timeout_secs=2.0, linger_secs=0.1)
    eventually(lambda: is_making(folder))
    pids = processes_with(str(folder))
    # The one that makes the loader, and not its child.
    parents = {
        int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pids
    }
    (host,) = set(pids) & parents
    os.kill(host, signal.SIGKILL)
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1, timeout_secs=60) as feed:
        assert ids(feed) == list(range(SAMPLES))
    os.kill(next(pid for pid in pids if pid != host), signal.SIGKILL)


def numbers_with_a_word() -> list[Any]:
    print("making the loader", flush=True)
    return numbers()


def follow(reconnect_secs: float) -> None:
    feed = feedline.share(
        numbers_with_a_word,
        "train",
        batch_size=7,
        ring=24,
        linger_secs=0.2,
        reconnect_secs=reconnect_secs,
    )
    batches = iter(feed)
    found = [int(i) for i in next(batches)]
    say("began", server=feed.stats()["server_pid"])
    hear()
    found += [int(i) for batch in batches for i in batch]
    say("read", ids=found, server=feed.stats()["server_pid"])


def test_a_server_that_was_killed_is_named_with_its_log(start: Start, folder: Path) -> None:
    job = start(follow, reconnect_secs=0.0)
    os.kill(job.expect("began")["server"], signal.SIGKILL)
    eventually(lambda: not feedline.feeds())
    job.tell("go on")
    job.expect_error(feedline.ServerLostError, str(folder / "train.log"))


def test_a_server_that_was_killed_is_started_again(start: Start) -> None:
    jobs = [start(follow, reconnect_secs=30.0) for _ in range(3)]
    servers = {job.expect("began")["server"] for job in jobs}
    assert len(servers) == 1
    os.kill(servers.pop(), signal.SIGKILL)
    for job in jobs:
        job.tell("go on")
    reports = [job.expect("read") for job in jobs]
    assert all(report["ids"] == list(range(SAMPLES)) for report in reports)
    assert len({report["server"] for report in reports}) == 1


def test_a_server_may_be_killed_as_often_as_one_likes() -> None:
    """Only starts that fail are counted, not those that went well."""
    options: dict[str, Any] = {"batch_size": 7, "ring": 24, "reconnect_secs": 30.0}
    with feedline.share(numbers, "train", linger_secs=0.2, **options) as feed:
        batches = iter(feed)
        for _ in range(7):
            next(batches)
            os.kill(feed.stats()["server_pid"], signal.SIGKILL)
        assert len(list(batches)) == 2


SHUFFLED = """
    import json, os, signal, sys, torch
    import feedline
    from torch.utils.data import DataLoader, Dataset

    class Noisy(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            return index, torch.rand(())

    def make_loader():
        own = torch.Generator().manual_seed(3) if sys.argv[1] == "own" else None
        workers = 2 if sys.argv[1] == "workers" else 0
        return DataLoader(Noisy(), 8, shuffle=True, generator=own, num_workers=workers)

    feed = feedline.share(make_loader, "train", batch_size=5, ring=24, linger_secs=0.1,
        wait_for=2, reconnect_secs=60)
    found = []
    for epoch in range(3):
        for number, (ids, noise) in enumerate(feed):
            found += zip(ids.tolist(), noise.tolist())
            if number == 4 and sys.argv[2] == "kills" and epoch != 1:
                os.kill(feed.stats()["server_pid"], signal.SIGKILL)
    print(json.dumps(found))
"""


@pytest.mark.parametrize("generator", ["global", "own", "workers"])
def test_a_shuffled_epoch_goes_on_in_its_order_after_a_crash(
    generator: str, tmp_path: Path
) -> None:
    """One job sees the server killed at its hand, the other only hears of it: both exact, alike."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SHUFFLED))
    jobs = [
        subprocess.Popen([sys.executable, str(script), generator, what], text=True, stdout=-1)
        for what in ("kills", "reads")
    ]
    first, second = (json.loads(job.communicate(timeout=90)[0]) for job in jobs)
    assert first == second
    for epoch in range(3):
        samples = first[64 * epoch : 64 * (epoch + 1)]
        assert sorted(index for index, _ in samples) == list(range(64))
    assert first[:64] != first[64:128]


def test_a_server_told_to_stop_says_so() -> None:
    with feedline.share(numbers, "train", batch_size=7, ring=24) as feed:
        batches = iter(feed)
        next(batches)
        os.kill(feed.stats()["server_pid"], signal.SIGTERM)
        with pytest.raises(feedline.ServerLostError, match="told to stop"):
            list(batches)


def slowly() -> list[Any]:
    print("making the loader")
    time.sleep(2.0)  # pause: slow on purpose
    return numbers()


def share_slowly(linger_secs: float = 0.2) -> None:
    feed = feedline.share(slowly, "train", batch_size=7, linger_secs=linger_secs)
    say("read", ids=ids(feed))


def is_making(folder: Path) -> bool:
    log = folder / "train.log"
    return log.exists() and "making the loader" in log.read_text()


def test_a_starter_that_is_killed_leaves_a_server_that_is_the_only_one(
    start: Start, folder: Path
) -> None:
    first = start(share_slowly)
    eventually(lambda: is_making(folder))
    others = [start(share_slowly) for _ in range(2)]
    first.kill()
    for other in others:
        assert other.expect("read")["ids"] == list(range(SAMPLES))


def test_a_server_whom_nobody_needs_leaves(start: Start, folder: Path) -> None:
    # Long enough to be seen.
    job = start(share_slowly, linger_secs=5.0)
    eventually(lambda: is_making(folder))
    job.kill()
    eventually(lambda: [one.name for one in feedline.feeds()] == ["train"])
    eventually(lambda: not feedline.feeds())
