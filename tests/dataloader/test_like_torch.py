"""What torch's DataLoader does for the same arguments, datasets and samplers."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from dataloader.datasets import Numbers, equal, numbers
from feedline import DataLoader

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def as_it_is(batch: Any) -> Any:
    return batch


class Keys(Dataset[str]):
    """Sample ``key`` is what the key looks like."""

    def __getitem__(self, key: Any) -> str:
        return repr(key)


def test_it_is_a_generic_class() -> None:
    loader: DataLoader[list[torch.Tensor]] = DataLoader[list[torch.Tensor]](Numbers(4), 2)
    assert numbers(loader) == list(range(4))


@WORKERS
def test_keys_may_be_larger_than_any_number_of_samples(workers: int) -> None:
    keys = [0, 1 << 63, 1 << 64, 1 << 70, -(1 << 70)]
    batches = list(DataLoader(Keys(), 2, sampler=keys, num_workers=workers))
    assert [key for batch in batches for key in batch] == [repr(key) for key in keys]


@WORKERS
def test_an_empty_batch_is_collated(workers: int) -> None:
    batches = [[0, 1], [], [2]]
    loader = DataLoader(Numbers(3), batch_sampler=batches, collate_fn=as_it_is, num_workers=workers)
    assert list(loader) == batches
    with_default = iter(DataLoader(Numbers(3), batch_sampler=batches, num_workers=workers))
    assert numbers([next(with_default)]) == [0, 1]
    with pytest.raises(IndexError, match="list index out of range"):
        next(with_default)
    assert numbers(with_default) == [2]


class Twice:
    """A sampler's batches, twice in one epoch."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return 2 * len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(2):
            yield from self.sampler


@WORKERS
@pytest.mark.parametrize("batch_size", [3, None])
def test_a_subclass_may_replace_the_samplers(workers: int, batch_size: int | None) -> None:
    class Repeating(DataLoader[Any]):
        """As those that keep their workers from epoch to epoch are written."""

        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            part = "sampler" if self.batch_sampler is None else "batch_sampler"
            object.__setattr__(self, part, Twice(getattr(self, part)))

    loader = Repeating(Numbers(6), batch_size, num_workers=workers)
    batches = [torch.as_tensor(batch).reshape(-1) for batch in loader]
    assert len(loader) == len(batches)
    assert numbers(batches) == [*range(6), *range(6)]


class Seeds(Dataset[int]):
    """Sample i is the seed of the worker that made it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> int:
        info = get_worker_info()
        assert info is not None
        return info.seed - info.id


def test_workers_have_other_seeds_in_each_epoch() -> None:
    loader = DataLoader(Seeds(), 4, num_workers=2, seed=3)
    first, second = set(numbers(loader)), set(numbers(loader))
    assert len(first) == len(second) == 1
    assert first != second
    assert set(numbers(DataLoader(Seeds(), 4, num_workers=2, seed=3))) == first, "of the seed alone"


def test_a_timeout_needs_workers() -> None:
    loader = DataLoader(Numbers(4), timeout=5)
    with pytest.raises(AssertionError, match="timeout=5 needs num_workers > 0"):
        iter(loader)


def test_one_batch_at_least_is_fetched_ahead() -> None:
    loader = DataLoader(Numbers(4), num_workers=1, prefetch_factor=0)
    with pytest.raises(AssertionError, match="prefetch_factor=0"):
        iter(loader)


def test_persistent_workers_serve_one_iteration_at_a_time() -> None:
    loader = DataLoader(Numbers(6), 2, num_workers=1, persistent_workers=True)
    first, second = iter(loader), iter(loader)
    assert numbers([next(first)]) == [0, 1]
    assert numbers([next(second)]) == [0, 1]
    with pytest.raises(RuntimeError, match="a later iteration of this loader"):
        next(first)
    assert numbers(second) == [2, 3, 4, 5]


def test_flags_may_be_numbers() -> None:
    loader = DataLoader(Numbers(4), 2, num_workers=1, in_order=1)  # type: ignore[arg-type]
    assert numbers(loader) == list(range(4))


def test_what_can_not_be_pickled_leaves_nothing_open() -> None:
    loader = DataLoader(
        Numbers(4, lambda number: number), num_workers=1, multiprocessing_context="spawn"
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(AttributeError, match="local object"):
            next(iter(loader))
        gc.collect()
    assert [warning for warning in seen if warning.category is ResourceWarning] == []


@pytest.mark.skipif(torch.accelerator.is_available(), reason="memory can be pinned here")
def test_memory_that_can_not_be_pinned_is_warned_of() -> None:
    loader = DataLoader(Numbers(4), 2, pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert numbers(loader) == list(range(4))


def test_a_device_to_pin_memory_for_is_warned_of() -> None:
    loader = DataLoader(Numbers(4), 2, pin_memory=True, pin_memory_device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
            iter(loader)


def test_a_loader_whose_epoch_can_not_begin_stays_where_it_is() -> None:
    class Growing(Numbers):
        samples_are_known = False

        def __len__(self) -> int:
            if not self.samples_are_known:
                raise TypeError("no length yet")
            return self.samples

    dataset = Growing(4)
    loader = DataLoader(dataset, 2)
    with pytest.raises(TypeError, match="no length yet"):
        list(loader)
    dataset.samples_are_known = True
    assert loader.state_dict()["epoch"] == 0


@WORKERS
def test_a_batch_that_raised_is_left_out_of_what_remains(workers: int) -> None:
    def make(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    loader = DataLoader(Numbers(10, make), 2, num_workers=workers, seed=0)
    batches = iter(loader)
    assert numbers([next(batches)]) == [0, 1]
    with pytest.raises(ValueError, match="three"):
        next(batches)
    assert numbers([next(batches)]) == [4, 5]
    resumed = DataLoader(Numbers(10), 2)
    resumed.load_state_dict(loader.state_dict())
    assert numbers(resumed) == [6, 7, 8, 9]


def test_a_long_message_keeps_its_class() -> None:
    def make(number: int) -> int:
        raise ValueError("x" * 3_000_000 + "the end")

    with pytest.raises(ValueError, match="the end"):
        next(iter(DataLoader(Numbers(2, make), 2, num_workers=1)))


def test_an_error_of_the_dataset_comes_alone() -> None:
    def make(number: int) -> int:
        raise KeyError("none")

    with pytest.raises(KeyError) as caught:
        next(iter(DataLoader(Numbers(2, make), 2, num_workers=1)))
    assert caught.value.__suppress_context__, "how it came here is not shown"


class Unreadable:
    """A class whose instances can be pickled, and nothing more."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("not here")


def test_a_batch_that_can_not_be_unpickled_is_left_out() -> None:
    def make(number: int) -> Any:
        return Unreadable() if number == 2 else number

    batches = iter(DataLoader(Numbers(6, make), 2, num_workers=1, collate_fn=as_it_is))
    assert next(batches) == [0, 1]
    with pytest.raises(LookupError, match="not here"):
        next(batches)
    assert list(batches) == [[4, 5]]


DTYPES = (
    *(torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128),
    *(torch.bool, torch.bfloat16, torch.float8_e4m3fn),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_travel(dtype: torch.dtype) -> None:
    sample = torch.tensor([[1, 0], [2, 3]]).to(dtype)
    loader = DataLoader(Numbers(2, lambda _: sample), batch_size=None, num_workers=1)
    assert all(equal(made, sample) for made in loader)
    (batch,) = DataLoader(Numbers(2, lambda _: sample), 2, num_workers=1)
    assert equal(batch, torch.stack([sample, sample]))


PAIR = torch.tensor([1 + 2j])


@pytest.mark.parametrize(
    "sample", [PAIR.conj(), PAIR.conj().imag, PAIR.imag, PAIR[:0].imag], ids=repr
)
def test_what_lies_otherwise_in_memory_travels(sample: torch.Tensor) -> None:
    (made,) = DataLoader(Numbers(1, lambda _: sample), batch_size=None, num_workers=1)
    assert torch.equal(made, sample)
    (listed,) = DataLoader(Numbers(1, lambda _: sample), 1, num_workers=1, collate_fn=as_it_is)
    assert torch.equal(listed[0], sample)
    if not sample.is_conj() and not sample.is_neg():
        (batch,) = DataLoader(Numbers(2, lambda _: sample), 2, num_workers=1)
        assert torch.equal(batch, torch.stack([sample, sample]))


def test_what_travels_whole_keeps_its_memory_format() -> None:
    sample = torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last)
    (made,) = DataLoader(Numbers(1, lambda _: sample), batch_size=None, num_workers=1)
    assert torch.equal(made, sample)
    assert made.stride() == sample.stride()
    (sliced,) = DataLoader(Numbers(1, lambda _: sample[..., ::2]), batch_size=None, num_workers=1)
    assert torch.equal(sliced, sample[..., ::2])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_many_at_once_may_be_fewer_or_collated_already(num_workers: int) -> None:
    class Filtered(Numbers):
        def __getitems__(self, keys: list[int]) -> list[int]:
            return [key for key in keys if key % 3]

    class Collated(Numbers):
        def __getitems__(self, keys: list[int]) -> dict[str, list[int]]:
            return {"keys": keys}

    loader = DataLoader(Filtered(12), 4, num_workers=num_workers)
    assert [batch.tolist() for batch in loader] == [[1, 2], [4, 5, 7], [8, 10, 11]]
    collated = DataLoader(Collated(6), 4, num_workers=num_workers, collate_fn=lambda batch: batch)
    assert list(collated) == [{"keys": [0, 1, 2, 3]}, {"keys": [4, 5]}]


def test_a_dataset_that_draws_nothing_finds_its_workers_seed() -> None:
    def make(number: int) -> bool:
        info = get_worker_info()
        assert info is not None
        return torch.initial_seed() == info.seed

    for batch in DataLoader(Numbers(40, make), 4, num_workers=2):
        assert bool(batch.all())
