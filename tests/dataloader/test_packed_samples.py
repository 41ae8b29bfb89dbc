"""Packed samples read like the list that they were made of."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from feedline._core import PackedSamples

SAMPLES = [("a/1.jpg", 0), ("", -7), ("ü/日.png", 1 << 40), ("b/2.jpg", 3)]


def packed() -> PackedSamples:
    made = PackedSamples.pack(SAMPLES)
    assert made is not None
    return made


def test_every_place_and_slice_is_the_lists() -> None:
    samples: Any = packed()
    assert len(samples) == len(SAMPLES)
    assert list(samples) == SAMPLES
    assert list(reversed(samples)) == SAMPLES[::-1]
    places = range(-len(SAMPLES), len(SAMPLES))
    assert [samples[place] for place in places] == [SAMPLES[place] for place in places]
    for part in (slice(None), slice(1, 3), slice(None, None, -2), slice(3, 1), slice(-2, 99)):
        assert samples[part] == SAMPLES[part]
    assert ("b/2.jpg", 3) in samples
    assert ("b/2.jpg", 4) not in samples


def test_what_is_no_place_raises_as_with_a_list() -> None:
    samples: Any = packed()
    for place in (4, -5):
        with pytest.raises(IndexError, match="list index out of range"):
            samples[place]
    with pytest.raises(TypeError, match="list indices must be integers or slices, not str"):
        samples["a"]


def test_a_copy_is_the_list_again() -> None:
    copy = pickle.loads(pickle.dumps(packed()))
    assert type(copy) is list
    assert copy == SAMPLES


@pytest.mark.parametrize(
    "other",
    [
        ["a", 1],
        ("a", 1, 2),
        (b"a", 1),
        ("a", 1.0),
        ("a", True),
        ("a", 1 << 63),
        ("no utf-8: \udcff", 1),
    ],
)
def test_other_samples_are_not_packed(other: Any) -> None:
    assert PackedSamples.pack([("a", 1), other]) is None
