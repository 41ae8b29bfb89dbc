"""Workers that die, hang or raise, and what is left of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import get_worker_info

import feedline
from dataloader.datasets import Numbers, numbers
from feedline import DataLoader
from support.child import hear, say
from support.processes import children_of_this_process
from support.waiting import eventually


def test_what_a_dead_worker_had_is_made_by_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "died"

    def make(number: int) -> int:
        if number == 20 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert numbers(DataLoader(Numbers(64, make), 8, num_workers=2)) == list(range(64))
    assert "was killed by signal 9 at place 4 of batch 2" in caplog.text


def test_a_sample_that_ends_its_workers_is_named() -> None:
    def make(number: int) -> int:
        if number == 20:
            os._exit(3)
        return number

    batches = iter(DataLoader(Numbers(64, make), 8, num_workers=2))
    assert numbers(next(batches) for _ in range(2)) == list(range(16))
    with pytest.raises(
        feedline.WorkerError, match="sample 20 of Numbers ended its worker"
    ) as caught:
        next(batches)
    assert isinstance(caught.value, RuntimeError)
    assert "3 times (the last one exited with status 3)" in str(caught.value)
    assert numbers(batches) == list(range(24, 64)), "the other batches are there"


def test_a_sample_that_takes_too_long_is_named_with_its_stack() -> None:
    def make(number: int) -> int:
        if number == 20:
            threading.Event().wait()
        return number

    with pytest.raises(feedline.WorkerError, match=r"timed out after 1 seconds: sample") as caught:
        list(DataLoader(Numbers(64, make), 8, num_workers=2, timeout=1))
    assert "sample 20 of Numbers" in str(caught.value)
    assert "test_workers.py" in str(caught.value)
    assert "in make" in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_the_dataset_raises_is_raised(num_workers: int) -> None:
    class OwnError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def make(number: int) -> int:
        if number == 9:
            raise KeyError("nine")
        if number == 17:
            raise OwnError(1, 2)
        return number

    batches = iter(DataLoader(Numbers(24, make), 4, num_workers=num_workers))
    assert numbers(next(batches) for _ in range(2)) == list(range(8))
    with pytest.raises(KeyError, match="nine") as caught:
        next(batches)
    if num_workers:
        assert "Original Traceback" in str(caught.value)
        assert "in make" in str(caught.value)
    if num_workers:
        assert next(batches).tolist() == [12, 13, 14, 15]
        with pytest.raises(RuntimeError, match="OwnError"):
            next(batches)
        assert next(batches).tolist() == [20, 21, 22, 23]


def test_a_worker_knows_who_it_is() -> None:
    def make(number: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert isinstance(info.dataset, Numbers)
        return number, info.id, info.num_workers

    rows = [
        row
        for batch in DataLoader(Numbers(40, make), 4, num_workers=3)
        for row in zip(*batch, strict=True)
    ]
    assert {int(workers) for _, _, workers in rows} == {3}
    assert {int(worker) for _, worker, _ in rows} <= {0, 1, 2}
    assert get_worker_info() is None


def test_a_function_that_initialises_workers() -> None:
    def initialise(worker: int) -> None:
        get_worker_info().dataset.samples = -1 - worker  # type: ignore[union-attr]

    class Shows(Numbers):
        def __getitem__(self, number: int) -> int:
            return self.samples

    loader = DataLoader(Shows(20), 4, num_workers=2, worker_init_fn=initialise)
    assert set(numbers(loader)) <= {-1, -2}

    def fails(worker: int) -> None:
        raise ValueError("no such device")

    with pytest.raises(ValueError, match="no such device"):
        list(DataLoader(Numbers(20), 4, num_workers=2, worker_init_fn=fails))


def test_an_iterator_that_is_dropped_leaves_nobody() -> None:
    before = set(children_of_this_process())
    for batch in DataLoader(Numbers(1000), 4, num_workers=2):
        assert len(batch) == 4
        break
    assert set(children_of_this_process()) == before
    both = [iter(DataLoader(Numbers(1000), 4, num_workers=1)) for _ in range(2)]
    assert [next(one).tolist() for one in both] == [[0, 1, 2, 3]] * 2
    both.clear()
    assert set(children_of_this_process()) == before


def test_workers_that_stay_are_the_same_in_each_epoch() -> None:
    loader = DataLoader(
        Numbers(16, lambda _: os.getpid()), 4, num_workers=2, persistent_workers=True
    )
    pids = set(numbers(loader))
    assert pids | set(numbers(loader)) == pids or len(pids) < 2
    partly = iter(loader)
    next(partly)
    assert len(numbers(loader)) == 16, "an epoch that was left in the middle does not matter"


def test_a_killed_job_leaves_nobody(start: Any) -> None:
    job = start(hold_a_batch)
    workers = job.expect("working")["pids"]
    job.kill()
    eventually(lambda: not any(map(is_there, workers)))


def hold_a_batch() -> None:
    """Tell the workers' pids, and wait to be killed."""
    batches = iter(DataLoader(Numbers(1000, lambda _: os.getpid()), 4, num_workers=2))
    say("working", pids=sorted({*numbers(next(batches) for _ in range(20))}))
    hear()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_other_threads_of_the_job_do_not_matter() -> None:
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            torch.rand(10)
            time.time()

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert numbers(DataLoader(Numbers(64), 8, num_workers=2)) == list(range(64))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_out_of_order_a_slow_sample_is_overtaken(tmp_path: Path) -> None:
    flag = tmp_path / "all others are there"

    def make(number: int) -> int:
        while number == 5 and not flag.exists():
            time.sleep(0.01)  # pause: a slow sample
        return number

    loader = DataLoader(Numbers(200, make), 4, num_workers=1, in_order=False)
    seen: list[int] = []
    for batch in loader:
        seen += batch.tolist()
        if len(seen) == 196:
            flag.touch()
    assert sorted(seen[:196]) == [*range(4), *range(8, 200)]
    assert seen[196:] == [4, 5, 6, 7]
