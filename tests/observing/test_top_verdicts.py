"""What `feedline top` says of feeds that were made slow in one way, with real processes.

Which numbers make which verdict is tested in Rust (`verdict/tests.rs`), where numbers are given.
These tests show that a server, its workers and its jobs are observed at all: each case is far from
the border to the next, and a test waits until the verdict comes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.feed_status import View, judged
from support.limits import MB, cpu_group, enter, memory_group, slow_disk
from support.processes import children_of
from support.waiting import eventually

pytestmark = pytest.mark.alone

Bytes = npt.NDArray[np.uint8]


class Paced:
    """Batches of 8 small samples without end, one in `secs`; not by computing. Some are ready."""

    def __init__(self, secs: float = 0.0, ready: int = 0) -> None:
        self.secs = secs
        self.ready = ready

    def __iter__(self) -> Iterator[Bytes]:
        batch = np.zeros((8, 64), np.uint8)
        yield from itertools.repeat(batch, self.ready)
        while True:
            time.sleep(self.secs)  # pause: slow on purpose
            yield batch


class ReadyMade:
    """The same large batch again and again: nothing to load, much to copy."""

    def __init__(self, *batches: int) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Bytes]:
        return itertools.repeat(np.zeros((4, 1 << 20), np.uint8), *self.batches)


class Burning:
    """A dataset that computes 2 ms for each sample."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Bytes:
        until = time.process_time() + 0.002
        while time.process_time() < until:
            pass
        return np.zeros(64, np.uint8)


def burning_loader(workers: int) -> Any:
    from torch.utils.data import DataLoader

    dataset: Any = Burning()
    return DataLoader(dataset, batch_size=8, num_workers=workers, collate_fn=np.stack)


def train(name: str = "train", secs: float = 0.0, ask_first: bool = False, **options: Any) -> None:
    """Spend so much time on each batch, until the feed ends."""
    feed = feedline.attach(name, **options)
    batches = iter(feed)
    next(batches)
    say("training")
    if ask_first:
        hear()
    for _ in batches:
        time.sleep(secs)  # pause: a training step


def serve(start: Start, loader: str, *args: Any, **options: Any) -> Any:
    server = start(roles.serve, loader=f"{__name__}:{loader}", loader_args=list(args), **options)
    server.expect("ready")
    return server


def test_a_loader_that_sleeps_waits_for_storage(start: Start) -> None:
    serve(start, "Paced", 0.1, wait_for=2)
    for _ in range(2):
        start(train)

    def is_seen(view: View) -> bool:
        waits = [consumer["wait_share"] for consumer in view["consumers"]]
        return view["loading_share"] > 0.7 and all(share > 0.5 for share in waits)

    words = ("2 jobs wait", "has no workers", "storage or network")
    judged("train", "loader-bound", *words, where=is_seen)


def test_workers_that_compute_are_seen(start: Start) -> None:
    """How busy they are depends on the machine; what follows from it is `cause`'s, in Rust."""
    server = serve(start, "burning_loader", 1)
    start(train, batch_size=16).expect("training")
    [worker] = children_of(server.pid)

    def is_seen(view: View) -> bool:
        workers = {one["pid"]: one["cpu_cores"] for one in view["workers"]}
        return list(workers) == [worker] and workers[worker] > 0

    judged("train", "loader-bound", "1 job waits", "1 worker at", where=is_seen)


@pytest.fixture
def a_bit_of_a_core() -> Iterator[Path]:
    with cpu_group(0.3) as path:
        yield path


def test_a_limit_that_is_used_up_is_named(a_bit_of_a_core: Path, start: Start) -> None:
    """Workers in a container look idle when they are not, on a machine with cores to spare."""
    server = serve(start, "burning_loader", 1)
    start(train, batch_size=16).expect("training")
    for pid in (server.pid, *children_of(server.pid)):
        enter(a_bit_of_a_core, pid)
    judged("train", "loader-bound", "the 0.3 of", "cores that it may use", "are busy: add cores")


def test_a_slow_consumer_is_named(start: Start) -> None:
    serve(start, "Paced", ring=64, wait_for=2)
    slow, fast = start(train, secs=0.3, batch_size=8), start(train, batch_size=8)
    for child in (slow, fast):
        child.expect("training")
    named = f"held back by pid {slow.pid}: 1 of 2 jobs waits"

    def is_behind(view: View) -> bool:
        lags = {consumer["pid"]: consumer["lag_samples"] for consumer in view["consumers"]}
        return bool(lags[slow.pid] > lags[fast.pid])

    view = judged("train", "held-back", named, "ring full", "lag='history'", where=is_behind)
    assert view["verdict"]["pid"] == slow.pid
    slow.stop()
    try:
        judged("train", "held-back", f"kill -CONT {slow.pid}", "stopped (state T)")
    finally:
        slow.resume()


def test_a_full_history_is_named(start: Start) -> None:
    serve(start, "Paced", ring=64, history="16kB", lag="history", wait_for=2)
    slow, fast = start(train, secs=0.3, batch_size=8), start(train, batch_size=8)
    for child in (slow, fast):
        child.expect("training")
    judged("train", "held-back", f"pid {slow.pid}", "history full", "a larger history=")


@pytest.mark.parametrize("in_file", [True, False], ids=["in a file", "in memory"])
def test_copying_that_takes_the_time_is_told(start: Start, tmp_path: Path, in_file: bool) -> None:
    place = {"history_dir": str(tmp_path), "history": "64MB"} if in_file else {"history": 0}
    serve(start, "ReadyMade", ring="128MB", **place)
    start(train)
    told = "without waiting for the disk" if in_file else "smaller samples"
    view = judged("train", "copy-bound", "1 job waits", "/s", told)
    assert view["history_in_file"] == in_file


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Slow, and with room for 900 MB."""
    with slow_disk(tmp_path, 900 * MB, 30 * MB) as path:
        yield path


def test_a_slow_disk_holds_up_who_writes_to_it(disk: Path, start: Start) -> None:
    serve(start, "ReadyMade", ring="64MB", history="400MB", history_dir=str(disk))
    start(train)
    judged("train", "disk-bound", "1 job waits", "waiting for the disk", "a faster disk")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 160 MB of memory."""
    with memory_group(160 * MB) as path:
        yield path


def read_all_pages(group: str) -> None:
    """Again and again, until the feed ends."""
    enter(group)
    feed = feedline.attach("train", batch_size=4)
    while True:
        for batch in feed:
            assert not batch[:, ::4096].any()


def test_what_does_not_fit_into_memory_is_read_from_the_disk(
    group: Path, start: Start, tmp_path: Path
) -> None:
    """A replayed epoch of 420 MB, in a file."""
    inside = ("sh", "-c", f'echo $$ >"{group}/cgroup.procs"; exec "$@"', "sh")
    options = {"replay": True, "samples": 400, "history_dir": str(tmp_path)}
    serve(start, "ReadyMade", 100, prefix=inside, **options)
    start(read_all_pages, group=str(group))
    judged("train", "disk-bound", "1 job reads what is kept from the disk", "a faster disk")


def test_slow_jobs_have_nothing_to_gain(start: Start) -> None:
    serve(start, "Paced", ring=512, wait_for=2)
    for _ in range(2):
        start(train, secs=0.1)

    def waits(view: View) -> bool:
        return bool(view["waiting_share"] > 0.5)

    judged("train", "trainers-bound", "nothing to gain here", where=waits)


def test_a_loader_that_falls_behind_is_told_while_what_is_loaded_lasts(start: Start) -> None:
    serve(start, "Paced", 0.05, 6000, ring=80_000)
    start(train, secs=0.01, batch_size=8).expect("training")
    judged("train", "loader-bound", "nobody waits yet", "is loaded ahead lasts", "storage or")


def test_one_that_is_stopped_is_named_and_not_blamed(start: Start) -> None:
    serve(start, "Paced", ring=512, history="1MB", lag="history", wait_for=2)
    stopped, slow = (start(train, secs=0.1, batch_size=8) for _ in range(2))
    for child in (stopped, slow):
        child.expect("training")
    stopped.stop()
    try:
        judged("train", "trainers-bound", f"; pid {stopped.pid} is stopped (state T): kill -CONT")
    finally:
        stopped.resume()


def test_what_keeps_up_is_balanced(start: Start) -> None:
    server = serve(start, "Paced", 0.02, ring=80_000)
    job = start(train, secs=0.02, batch_size=8, ask_first=True)
    job.expect("training")
    # With this much in hand neither waits for the other, even if one is a little faster.
    eventually(lambda: server.ask("stats")["stats"]["batches"] > 100)
    job.tell("go")
    judged("train", "balanced", "no job waits")
