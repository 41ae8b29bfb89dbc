"""Workers that are threads of the job: what they share with it, and what they leave."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as data
from torch.utils.data import get_worker_info

import feedline
from dataloader.datasets import Numbers, equal, fields, numbers
from feedline import DataLoader
from support.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def threads(dataset: Any, batch_size: int | None = 4, num_workers: Any = 2, **keywords: Any) -> Any:
    """Make a loader with threads."""
    return DataLoader(dataset, batch_size, num_workers=num_workers, workers="threads", **keywords)


def of_pools() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("feedline worker")]


@pytest.fixture(autouse=True)
def leaves_no_thread() -> Iterator[None]:
    before = set(of_pools())
    yield

    def are_gone() -> bool:
        # What was raised holds the iterator that it was raised by. A collection does nothing while
        # another thread is at one.
        gc.collect()
        return set(of_pools()) <= before

    eventually(are_gone)


@pytest.mark.parametrize("batch_size", [16, 7, 130, None])
@pytest.mark.parametrize("keywords", [{}, {"in_order": False}, {"persistent_workers": True}])
def test_batches_are_torchs(batch_size: int | None, keywords: dict[str, Any]) -> None:
    dataset = Numbers(130, fields)
    loader = threads(dataset, batch_size, 3, **keywords)
    theirs = list(data.DataLoader(dataset, batch_size))
    for _ in range(2):
        got = list(loader)
        if not keywords.get("in_order", True):
            got.sort(key=lambda batch: int(torch.as_tensor(batch["pair"][0]).reshape(-1)[0]))
        assert equal(got, theirs)
    loader.close()


def test_a_large_sample_is_copied_whole() -> None:
    loader = threads(Numbers(8, lambda number: torch.full((1 << 18,), number)), 2)
    assert [batch.float().mean(dim=1).tolist() for batch in loader] == [
        [number, number + 1] for number in range(0, 8, 2)
    ]


def test_the_dataset_is_the_jobs_own_object(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(100)))
    made_in = set()
    with path.open("rb") as file:

        def make(number: int) -> int:
            made_in.add((os.getpid(), threading.get_ident()))
            return os.pread(file.fileno(), 1, number)[0]

        assert numbers(threads(Numbers(100, make))) == list(range(100))
    assert {pid for pid, _ in made_in} == {os.getpid()}
    assert threading.get_ident() not in {thread for _, thread in made_in}


def test_all_threads_fill_the_next_batch_together() -> None:
    together = threading.Barrier(3)

    def make(number: int) -> int:
        together.wait()
        return number

    assert numbers(threads(Numbers(12, make), 3, 3)) == list(range(12))


def test_without_workers_the_job_makes_them_itself() -> None:
    made_in = {int(of) for of in threads(Numbers(4, lambda _: threading.get_ident()), None, 0)}
    assert made_in == {threading.get_ident()}


def test_whole_batches_are_handed_over_as_they_are() -> None:
    class Unpicklable:
        def __init__(self, samples: list[int]) -> None:
            self.samples = samples
            self.lock = threading.Lock()

    loader = threads(Numbers(8), 4, collate_fn=Unpicklable)
    assert [batch.samples for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    words = threads(Numbers(5, lambda number: f"{number}"), 2)
    assert list(words) == [["0", "1"], ["2", "3"], ["4"]]
    mixed = Numbers(20, lambda number: 0.5 if number == 9 else number)
    assert equal(list(threads(mixed)), list(data.DataLoader(mixed, 4)))


def test_keys_that_are_no_numbers() -> None:
    class Words(data.Dataset[Any]):
        def __getitem__(self, key: Any) -> Any:
            return repr(key)

    keys = ["a", (1, 2), 1 << 70, -1]
    assert [word for batch in threads(Words(), 3, sampler=keys) for word in batch] == [
        repr(key) for key in keys
    ]
    batches = threads(Numbers(3), 1, batch_sampler=[[0, 1], [], [2]], collate_fn=list)
    assert list(batches) == [[0, 1], [], [2]]


def test_many_at_once() -> None:
    class Many(Numbers):
        def __getitems__(self, keys: list[int]) -> list[Any]:
            return [(key, torch.rand(2)) for key in keys if key % 5]

    made = [
        list(DataLoader(Many(20), 6, num_workers=2, workers=kind, seed=1))
        for kind in ("threads", "processes")
    ]
    assert equal(*made)


# Who a thread is.


def test_a_thread_knows_who_it_is() -> None:
    both = threading.Barrier(2)

    def make(number: int) -> Any:
        both.wait()
        info = get_worker_info()
        assert info is data.get_worker_info()
        assert info is not None
        assert isinstance(info.dataset, Numbers)
        return info.id, info.num_workers, info.seed

    loader = threads(Numbers(16, make), 2, 2, seed=3)
    for batch in loader:
        assert sorted(batch[0].tolist()) == [0, 1], "two threads at once, and each its own"
        assert set(batch[1].tolist()) == {2}
        assert len({int(seed) - int(of) for of, seed in zip(batch[0], batch[2], strict=True)}) == 1
        assert get_worker_info() is None


@pytest.mark.parametrize("takes_many", [False, True])
def test_no_sample_is_made_twice(takes_many: bool) -> None:
    """Not even the first ones, by which the lanes are found."""
    made: list[int] = []

    class Many(Numbers):
        def __getitems__(self, keys: list[int]) -> list[int]:
            return [self.make(key) for key in keys]

    def make(number: int) -> int:
        made.append(number)
        return number

    dataset = (Many if takes_many else Numbers)(40, make)
    assert numbers(threads(dataset, 4, 3)) == list(range(40))
    assert sorted(made) == list(range(40))


def test_a_threads_own_generators_are_seeded_for_each_sample() -> None:
    def make(number: int) -> Any:
        info: Any = get_worker_info()
        if getattr(info, "rng", None) is None:
            pytest.skip("an older torch")
        rng = info.rng
        return (
            rng.random_generator.random(),
            rng.numpy_generator.random(),
            torch.rand(1, generator=rng.torch_generator),
        )

    one, three = (list(threads(Numbers(30, make), 5, count, seed=1)) for count in (1, 3))
    assert equal(one, three)
    assert len({float(value) for batch in one for value in batch[0]}) == 30


def test_a_function_that_initialises_threads() -> None:
    seen: list[tuple[int, int]] = []

    def initialise(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        assert info.id == worker
        seen.append((worker, threading.get_ident()))

    assert numbers(threads(Numbers(20), worker_init_fn=initialise)) == list(range(20))
    assert sorted(worker for worker, _ in seen) == [0, 1]
    assert len({thread for _, thread in seen}) == 2

    def fails(worker: int) -> None:
        raise ValueError("no such device")

    with pytest.raises(ValueError, match="no such device"):
        list(threads(Numbers(20), worker_init_fn=fails))


# What goes wrong.


class OwnError(Exception):
    """One that can't be made of a message, nor pickled."""

    def __init__(self, one: int, lock: Any) -> None:
        super().__init__(f"{one}")
        self.lock = lock


def test_what_the_dataset_raises_is_raised_as_it_is() -> None:
    def make(number: int) -> int:
        if number == 9:
            try:
                raise KeyError("nine")
            except KeyError as error:
                raise OwnError(9, threading.Lock()) from error
        if number == 17:
            raise SystemExit(17)
        return number

    batches = iter(threads(Numbers(24, make)))
    assert numbers(next(batches) for _ in range(2)) == list(range(8))
    with pytest.raises(OwnError, match="9") as caught:
        next(batches)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in make" in "".join(f"in {entry.name}" for entry in caught.traceback)
    assert next(batches).tolist() == [12, 13, 14, 15]
    with pytest.raises(SystemExit):
        next(batches)
    assert next(batches).tolist() == [20, 21, 22, 23]


def test_a_sample_that_the_dataset_does_not_have_is_named() -> None:
    with pytest.raises(IndexError, match="yielded sample 7"):
        list(threads([1, 2], sampler=[0, 7]))


def test_a_sample_that_takes_too_long_is_named_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    def make(number: int) -> int:
        if number == 20:
            release.wait()
        return number

    loader = threads(Numbers(64, make), 8, 2, timeout=5)
    batches = iter(loader)
    assert numbers(next(batches) for _ in range(2)) == list(range(16))
    with pytest.raises(feedline.WorkerError, match=r"sample 20 of Numbers took longer") as caught:
        next(batches)
    assert "in make" in str(caught.value)
    assert 'workers="processes"' in str(caught.value)
    assert "at place 4 of batch 2" in caplog.text
    assert numbers(batches) == list(range(24, 64)), "another thread took its place"
    release.set()
    eventually(lambda: not of_pools())


def test_threads_that_all_hang_are_an_error() -> None:
    release = threading.Event()
    batches = iter(threads(Numbers(64, lambda _: release.wait()), 4, 1, timeout=0.2))
    with pytest.raises(feedline.WorkerError, match="took longer"):
        next(batches)
    with pytest.raises(feedline.WorkerError):
        list(batches)
    release.set()
    del batches
    eventually(lambda: not of_pools())


def test_an_iterator_that_is_dropped_leaves_nobody() -> None:
    for batch in threads(Numbers(1000)):
        assert len(batch) == 4
        break
    assert of_pools() == []
    loader = threads(Numbers(16, lambda _: threading.get_ident()), persistent_workers=True)
    partly = iter(loader)
    next(partly)
    assert len(numbers(loader)) == 16, "an epoch that was left in the middle does not matter"
    assert len(of_pools()) == 2
    loader.close()
    assert of_pools() == []


def test_out_of_order_a_slow_sample_is_overtaken() -> None:
    others = threading.Event()

    def make(number: int) -> int:
        if number == 5:
            others.wait()
        return number

    seen: list[int] = []
    for batch in threads(Numbers(200, make), 4, 1, in_order=False):
        seen += batch.tolist()
        if len(seen) == 196:
            others.set()
    assert seen[196:] == [4, 5, 6, 7]
    assert sorted(seen) == list(range(200))


def test_the_pool_finds_its_number_of_threads() -> None:
    loader = threads(Numbers(400), 4, "auto")
    assert numbers(loader) == list(range(400))
    assert loader.pool_size.workers >= 1


def test_a_child_that_is_forked_meanwhile_has_its_batch_and_no_threads() -> None:
    loader = threads(Numbers(4000, lambda number: torch.full((512,), number)), 8)
    batches = iter(loader)
    held = next(batches)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            mine = numbers(threads(Numbers(16)))
            whole = bool(torch.equal(held[:, 0], torch.arange(8)))
            status = 0 if whole and mine == list(range(16)) else 2
        finally:
            os._exit(status)
    assert subprocess.run([sys.executable, "-c", ""], check=True).returncode == 0
    assert numbers(batch[:, 0] for batch in batches) == list(range(8, 4000))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


HEAD = """
import os, sys, threading, time, torch
from feedline import DataLoader
class Numbers:
    def __len__(self): return 10_000
    def __getitem__(self, number): return make(number)
"""
ENDS = {
    # In the middle of short samples that take and release the GIL.
    "abandoned": "make = lambda n: (time.sleep(0.001), torch.full((90_000,), n))[1]\n"
    "batches = iter(loader()); next(batches); print('end')",
    "raising": "make = lambda n: (time.sleep(0.001), torch.full((90_000,), n))[1]\n"
    "batches = iter(loader()); next(batches); print('end', flush=True); raise SystemExit(0)",
    # One that ends after the threads were given up, and one that never does.
    "hanging": "def make(n):\n    if n > 9: threading.Event().wait()\n    return n\n"
    "batches = iter(loader()); next(batches); print('end')",
    "interrupted": "import signal\ndef make(n):\n"
    "    if n == 9: os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.001); return n\n"
    "try: list(loader())\nexcept KeyboardInterrupt: print('end')",
}


@pytest.mark.processes
@pytest.mark.parametrize("how", ENDS)
def test_an_interpreter_ends_in_the_middle_of_samples(how: str) -> None:
    loader = "loader = lambda: DataLoader(Numbers(), 4, num_workers=3, workers='threads')\n"
    job = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + loader + ENDS[how]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (job.stdout, job.stderr, job.returncode) == ("end\n", "", 0)


@pytest.mark.processes
def test_a_server_has_threads_where_it_was_started_with_them() -> None:
    keywords: dict[str, Any] = {"shuffle": True, "seed": 4, "linger_secs": 0.1, "name": "threads"}
    dataset = Numbers(60, lambda number: (number, torch.rand(2), threading.current_thread().name))
    cut = Numbers(60, lambda number: (number, torch.rand(2), _is_a_thread()))
    with (
        DataLoader(cut, 8, num_workers=2, workers="threads", **keywords) as one,
        DataLoader(cut, 8, num_workers=2, **keywords) as other,
    ):
        first, second = list(one), list(other)
    assert equal(first, second)
    assert all(bool(batch[2].all()) for batch in first), "both have the server's threads"
    alone = list(DataLoader(dataset, 8, shuffle=True, seed=4, collate_fn=_without_names))
    assert equal([batch[:2] for batch in first], alone)
    eventually(lambda: not feedline.feeds())


def _is_a_thread() -> bool:
    return threading.current_thread().name.startswith("feedline worker") and bool(of_pools()[1:])


def _without_names(samples: list[Any]) -> Any:
    return data.default_collate([list(sample[:2]) for sample in samples])


# What is refused.


def test_wrong_values_are_named() -> None:
    with pytest.raises(feedline.FeedValueError, match=r"'thread' is neither .* nor .threads"):
        DataLoader(Numbers(4), workers="thread")  # type: ignore[arg-type]
    with pytest.raises(feedline.FeedValueError, match="multiprocessing_context='spawn'"):
        threads(Numbers(4), multiprocessing_context="spawn")

    class Stream(data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield 1

    with pytest.raises(feedline.FeedValueError, match="Stream is an IterableDataset"):
        threads(Stream())
    assert numbers(threads(Stream(), num_workers=0)) == [1]
