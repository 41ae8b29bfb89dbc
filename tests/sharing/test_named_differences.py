"""A message about two loaders names the value that differs, also inside of captured objects."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import feedline
from feedline._identity import differences, identity_of
from feedline._identity.shown import shown


def lines(one: Any, other: Any) -> list[str]:
    """What is told of two jobs that capture these objects; the running feed's is the first."""

    def capturing(captured: Any) -> Any:
        return lambda: captured

    there, here = identity_of(capturing(one)), identity_of(capturing(other))
    return differences(here.entries, there.entries, 7)[0]


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def test_the_field_of_a_captured_loader() -> None:
    one, other = (DataLoader(numbers(count), batch_size=4) for count in (100, 60))
    (line,) = lines(one, other)
    assert re.search(r"captured\.dataset\.tensors\b.*\(100,\).*running feed.*\(60,\).* here", line)


def test_a_field_of_a_field() -> None:
    one, other = (DataLoader(Subset(numbers(9), range(end)), batch_size=4) for end in (4, 5))
    assert lines(one, other) == [
        "captured.dataset.indices: range(0, 4) in the running feed (pid 7), range(0, 5) here"
    ]


def test_a_field_of_one_of_several() -> None:
    def concatenated(end: int) -> DataLoader[Any]:
        outer: ConcatDataset[Any] = ConcatDataset([numbers(5), Subset(numbers(9), range(end))])
        return DataLoader(Subset(outer, range(6)), batch_size=4)

    assert lines(concatenated(4), concatenated(5))[-1] == (
        "captured.dataset.dataset.datasets[1].indices: range(0, 4) in the running feed (pid 7), "
        "range(0, 5) here"
    )


def test_what_looks_alike_is_named_where_it_stands() -> None:
    one, other = (Subset(numbers(90), list(range(start, start + 50))) for start in (0, 7))
    assert lines(one, other) == [
        "captured.indices: a list of 50 in the running feed (pid 7), another one here"
    ]


def test_objects_of_other_classes_are_told_by_their_classes() -> None:
    (line,) = lines(numbers(4), Subset(numbers(4), [0]))
    assert "TensorDataset in the running feed" in line
    assert "Subset here" in line


@pytest.mark.parametrize("captures", ["a number", "a loader"])
def test_another_batch_size_says_how_each_job_has_its_own(captures: str, folder: object) -> None:
    def maker(size: int) -> Any:
        loader = DataLoader(numbers(40), batch_size=size)
        return (lambda: loader) if captures == "a loader" else (lambda: make(size))

    def make(size: int) -> Any:
        return DataLoader(numbers(40), batch_size=size)

    with (
        feedline.share(maker(4), "train", linger_secs=0.1),
        pytest.raises(feedline.FeedMismatchError) as raised,
    ):
        feedline.share(maker(8), "train", linger_secs=0.1)
    assert "size: 4 in the running feed" in str(raised.value)
    assert ("share(..., batch_size=8)" in str(raised.value)) == (captures == "a loader")


def test_a_long_text_is_cut_before_it_is_shown() -> None:
    class Long(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise AssertionError("a copy of all of it, and more")

    assert shown("x" * 1000) == "'" + "x" * 78 + "…"
    assert shown(Long("x" * 1000)).startswith("'xxx")
