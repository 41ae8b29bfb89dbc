"""A loader's pool of workers, seen from outside of its server's process.

How it reads, and what follows from it, is tested in Rust (``pool.rs``, ``verdict/pool.rs``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import feedline
from dataloader.datasets import Numbers
from feedline import DataLoader
from support.feed_status import feedline_run, judged, top
from support.waiting import eventually


def who(_: int) -> int:
    """Tell which process makes a sample; slower than anybody takes it."""
    time.sleep(0.01)  # pause: a job waits for it
    return os.getpid()


def loader(num_workers: Any, **keywords: Any) -> Any:
    """One job's loader: its batches are the pids of those that made them."""
    keywords = {"name": "pool", "linger_secs": 0.1, **keywords}
    return DataLoader(Numbers(1 << 20, who), 8, num_workers=num_workers, **keywords)


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_its_workers_are_those_that_make_samples(context: str) -> None:
    with loader(2, multiprocessing_context=context) as job:
        batches = iter(job)
        makers = set[int]()
        while len(makers) < 2:
            makers |= set(next(batches).tolist())

        def is_seen() -> bool:
            next(batches)
            view = top("pool", interval_secs=0.1)
            assert view["pool"]["why"] == "fixed"
            return bool({worker["pid"] for worker in view["workers"]} == makers)

        eventually(is_seen)
        assert job.pool_size == (2, 2, "num_workers=2")


def test_workers_that_die_are_counted() -> None:
    # In this process: what a server of its own has to say of it would be left in its log.
    makes = DataLoader(Numbers(1 << 20, who), 8, num_workers=2)
    with feedline.Server(makes, "pool") as server, feedline.attach("pool") as feed:
        batches = iter(feed)
        os.kill(int(next(batches)[0]), signal.SIGKILL)

        def is_seen() -> bool:
            next(batches)
            pool = server.stats()["pool"]
            return bool(pool["died"] == 1 and pool["workers"] == 2)

        eventually(is_seen)
        assert "replaced: 1 died" in top("pool", interval_secs=0.1)["pool"]["text"]
        page = feedline_run("metrics").stdout
        assert 'feedline_pool_died_total{feed="pool"} 1\n' in page
        assert 'feedline_pool_info{feed="pool",why="fixed"} 1\n' in page


def test_a_job_that_waits_for_a_number_that_was_given_is_told_to_give_another() -> None:
    with loader(2) as job:
        batches = iter(job)
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                next(batches)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            judged("pool", "loader-bound", "2 workers at", 'num_workers="auto"')
        finally:
            over.set()
            reader.join()


def test_a_number_that_was_found_is_told_with_its_reason() -> None:
    with loader("auto") as job:
        batches = iter(job)
        seen: list[Any] = []

        def is_settled() -> bool:
            assert torch.is_tensor(next(batches))
            seen.append(job.stats()["pool"]["why"])
            return seen[-1] not in ("fixed", "starting")

        eventually(is_settled)
        size = job.pool_size
        assert 1 <= size.workers <= size.most
        assert feedline_run("top", "pool", "--once").stdout.count(", auto: ") == 1


def test_a_server_of_another_loader_has_no_pool() -> None:
    with feedline.Server([torch.zeros(4)] * 4, "pool") as server:
        assert server.stats()["pool"] is None
    with feedline.Server(DataLoader(Numbers(8), 2, num_workers=1), "pool", epochs=1) as server:
        with feedline.attach("pool") as feed:
            assert len(list(feed)) == 4
        pool = server.stats()["pool"]
        assert (pool["samples"], pool["wanted"], pool["died"]) == (8, 1, 0)
