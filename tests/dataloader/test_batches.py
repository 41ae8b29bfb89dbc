"""Batches are what torch's DataLoader makes of the same dataset, whoever makes them."""

from __future__ import annotations

import gc
import os
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

from dataloader.datasets import Numbers, drawing, equal, fields, numbers
from feedline import DataLoader

Pair = namedtuple("Pair", ["image", "label"])

SAMPLES = 130


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [16, 7, SAMPLES, None])
@pytest.mark.parametrize("drop_last", [False, True])
def test_they_are_torchs(num_workers: int, batch_size: int | None, drop_last: bool) -> None:
    dataset = Numbers(SAMPLES, fields)
    keywords: dict[str, Any] = {"batch_size": batch_size}
    if batch_size is not None:
        keywords["drop_last"] = drop_last
    ours = DataLoader(dataset, num_workers=num_workers, **keywords)
    theirs = data.DataLoader(dataset, **keywords)
    assert len(ours) == len(theirs)
    for epoch in range(2):
        got = list(ours)
        assert len(got) == len(ours), epoch
        assert equal(got, list(theirs))


def test_named_tuples_stay_what_they_are() -> None:
    dataset = Numbers(10, lambda number: Pair(torch.zeros(2), number))
    batch = next(iter(DataLoader(dataset, 4, num_workers=1)))
    assert type(batch) is Pair
    assert batch.label.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda number: {"path": f"{number}.jpg", "x": torch.tensor(number)},
        lambda number: (b"bytes", number),
        lambda number: torch.tensor(number, dtype=torch.complex64),
        lambda number: {"deep": [{"text": str(number)}, number]},
    ],
)
def test_what_has_no_lanes_travels_whole(make: Any) -> None:
    dataset = Numbers(20, make)
    assert equal(list(DataLoader(dataset, 6, num_workers=2)), list(data.DataLoader(dataset, 6)))


def test_a_function_that_collates_gets_the_samples() -> None:
    dataset = Numbers(20, lambda number: torch.zeros(number % 3))
    ours = DataLoader(dataset, 6, num_workers=2, collate_fn=lambda samples: samples)
    assert equal(
        list(ours), [[torch.zeros(i % 3) for i in range(20)][k : k + 6] for k in range(0, 20, 6)]
    )


def test_arrays_of_a_function_that_collates_arrive() -> None:
    loader = DataLoader(
        Numbers(8), 4, num_workers=1, collate_fn=lambda samples: {"x": np.full(1000, samples[0])}
    )
    first, second = loader
    first["x"][0] = 7
    assert second["x"].sum() == 4000
    assert first["x"][1:].sum() == 0


def test_one_sample_of_another_type_is_collated_as_torch_does() -> None:
    def make(number: int) -> Any:
        return 0.5 if number == 9 else number

    dataset = Numbers(20, make)
    assert equal(list(DataLoader(dataset, 4, num_workers=2)), list(data.DataLoader(dataset, 4)))


def test_ragged_samples_are_torchs_error() -> None:
    dataset = Numbers(20, lambda number: torch.zeros(3 if number != 9 else 4))
    loader = iter(DataLoader(dataset, 4, num_workers=2))
    assert [tuple(next(loader).shape) for _ in range(2)] == [(4, 3), (4, 3)]
    with pytest.raises(RuntimeError, match="equal size"):
        next(loader)
    assert [tuple(batch.shape) for batch in loader] == [(4, 3), (4, 3)], "the rest is there"


def test_many_at_once() -> None:
    class Many(Numbers):
        def __getitems__(self, keys: list[int]) -> list[int]:
            return [key + 1000 for key in keys]

    for num_workers in (0, 2):
        loader = DataLoader(Many(20), 6, num_workers=num_workers)
        assert numbers(loader) == [*range(1000, 1020)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_that_are_kept_do_not_change(num_workers: int) -> None:
    kept = list(
        DataLoader(Numbers(2000, lambda i: torch.full((50,), i)), 8, num_workers=num_workers)
    )
    assert all(torch.equal(batch[:, 0], torch.arange(8) + 8 * at) for at, batch in enumerate(kept))


def test_writes_into_a_batch_spoil_no_other() -> None:
    seen = []
    for batch in DataLoader(Numbers(400, lambda i: torch.full((500,), i)), 8, num_workers=2):
        seen.append(batch[:, 0].tolist())
        batch.fill_(-1)
    assert [number for batch in seen for number in batch] == list(range(400))


def test_a_forked_child_keeps_what_it_inherits() -> None:
    batches = iter(DataLoader(Numbers(4000, lambda i: torch.full((512,), i)), 8, num_workers=2))
    held = next(batches)
    reader, writer = os.pipe()
    hold, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(hold, 1)
        os.write(writer, b"1" if torch.equal(held[:, 0], torch.arange(8)) else b"0")
        os._exit(0)
    del held
    gc.collect()
    assert numbers(batch[:, 0] for batch in batches) == list(range(8, 4000))
    os.write(go, b"x")
    assert os.read(reader, 1) == b"1"
    os.waitpid(pid, 0)
    for descriptor in (reader, writer, hold, go):
        os.close(descriptor)


def test_samplers_of_every_kind() -> None:
    class Words(data.Dataset[Any]):
        def __getitem__(self, key: Any) -> Any:
            return f"{key}"

    for sampler in (["a", "b", "c"], [(1, 2), (3, 4)], [np.int64(3), np.int64(1)]):
        loader = DataLoader(Words(), 2, sampler=sampler, num_workers=1)
        assert [word for batch in loader for word in batch] == [str(key) for key in sampler]
    batches = [[3, 1], [2], [5, 6, 7]]
    loader = DataLoader(Numbers(10), batch_sampler=batches, num_workers=2)
    assert [batch.tolist() for batch in loader] == batches


def test_out_of_order_each_sample_comes_once() -> None:
    loader = DataLoader(Numbers(100, drawing), 7, num_workers=3, in_order=False, shuffle=True)
    for _ in range(2):
        assert sorted(numbers(loader)) == list(range(100))
