"""Scenario 11: batches come back in the structure and the types that the loader yielded."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support import loaders
from support.child import say
from support.loaders import Fields, Pair, Record

torch = pytest.importorskip("torch")

B = 6


def through(batches: Iterable[Any], *, batch_size: int | None = None, **options: Any) -> list[Any]:
    """Give what a consumer gets of these batches."""
    with (
        feedline.Server(batches, "train", epochs=1, **options),
        feedline.attach("train", batch_size=batch_size) as feed,
    ):
        return list(feed)


def same(got: Any, want: Any) -> bool:
    """Equal in type, structure, dtype, shape and every bit."""
    if isinstance(want, torch.Tensor):
        want = want.detach()
        return (
            type(got) is torch.Tensor
            and got.dtype == want.dtype
            and got.shape == want.shape
            and bool(torch.equal(_bits(got), _bits(want)))
        )
    if isinstance(want, np.ndarray):
        return (
            type(got) is np.ndarray
            and got.dtype == want.dtype
            and got.shape == want.shape
            and got.tobytes() == want.tobytes()
        )
    if type(got) is not type(want):
        return False
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[key], want[key]) for key in want)
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(same, got, want))
    if is_dataclass(want):
        return all(same(getattr(got, f.name), getattr(want, f.name)) for f in fields(want))
    if isinstance(want, float):
        return math.copysign(1, got) == math.copysign(1, want) and (
            got == want or (math.isnan(got) and math.isnan(want))
        )
    return bool(got == want)


def _bits(tensor: Any) -> Any:
    tensor = tensor.contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).view(torch.uint8)


def x(*shape: int) -> Any:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


SHARED = x(B, 3)

CUTTABLE: dict[str, Any] = {
    "one tensor": x(B, 3),
    "one array": np.arange(B * 4).reshape(B, 4),
    "tuple": (x(B, 3), torch.arange(B)),
    "list, as default_collate makes it": [x(B, 3), torch.arange(B)],
    "tuple of one": (x(B, 2),),
    "dict": {"image": x(B, 3, 4, 4), "label": torch.arange(B)},
    "dict with odd keys": {0: x(B, 1), 1: x(B, 2), "": x(B, 3), "a/b.c": x(B, 4), "ü": x(B, 5)},
    "nested": {"a": {"b": [x(B, 2), (x(B, 1), {"c": torch.arange(B)})]}, "d": (x(B, 7),)},
    "namedtuple": Pair(x(B, 3), torch.arange(B)),
    "ordered dict": OrderedDict(z=x(B, 1), a=x(B, 2)),
    "dict subclass": Fields(input_ids=x(B, 8), mask=torch.ones(B, 8, dtype=torch.bool)),
    "torch and numpy side by side": (x(B, 3), np.arange(B, dtype=np.int16)),
    "no bytes in a dimension": (
        torch.zeros(B, 0, 4),
        torch.arange(B),
        np.zeros((B, 3, 0), np.int8),
    ),
    "one dimension only": torch.arange(B),
    "many dimensions": x(B, 1, 2, 1, 3, 1, 2),
    "the same tensor twice": (SHARED, SHARED),
}

WHOLE: dict[str, Any] = {
    "strings": {"image": x(B, 3), "name": [f"image {i} ü" for i in range(B)]},
    "text of a batch": (x(B, 3), "a caption"),
    "scalars": (x(B, 3), 1, -7, 0.5, True, False, None, 2**63, -(2**100), 10**40, 1 + 2j),
    "odd floats": (x(B, 1), math.inf, -math.inf, math.nan, -0.0, 5e-324),
    "bytes": {"raw": [b"\x00\xff", b"", b"jpeg"], "more": b"\x00" * 1000},
    "empty strings": ["", "\x00", "\U0001f600"],
    "dataclass with a string": Record(image=x(B, 3), label=torch.arange(B)),
    "ragged list": [x(n, 2) for n in (3, 1, 4, 1, 5)],
    "ragged arrays": {"tokens": [np.arange(n) for n in (3, 0, 7)]},
    "detection": (x(2, 3), [{"boxes": x(4, 4), "label": "cat"}, {"boxes": x(0, 4), "label": ""}]),
    "0-d tensor": (x(B, 3), torch.tensor(3.5)),
    "0-d array": (x(B, 3), np.array(7, np.int16)),
    "another length": {"image": x(B, 3), "classes": x(10, 2)},
    "empty containers": ({}, [], (), x(B, 1)),
    "numpy scalars": (x(B, 1), np.float32(1.5), np.int8(-3), np.bool_(True)),
    "no tensor at all": {"step": 7, "name": "train"},
}


@pytest.mark.parametrize("what", sorted(CUTTABLE))
def test_structure_of_batches_that_can_be_cut(what: str) -> None:
    want = CUTTABLE[what]
    got = through([want, want])
    assert len(got) == 2
    assert all(same(one, want) for one in got), got[0]


@pytest.mark.parametrize("what", sorted(CUTTABLE))
def test_cutting_keeps_the_structure(what: str) -> None:
    """Four samples from two batches of six: every leaf is cut at the same places."""
    want = CUTTABLE[what]
    got = through([want, want], batch_size=4)
    assert len(got) == 3
    assert all(_shape(one) == _shape(want) for one in got)
    pieces = [list(_leaves(one)) for one in got]
    for number, leaf in enumerate(_leaves(want)):
        cat: Any = torch.cat if isinstance(leaf, torch.Tensor) else np.concatenate
        assert same(cat([piece[number] for piece in pieces]), cat([leaf, leaf]))


def _leaves(batch: Any) -> Iterable[Any]:
    if isinstance(batch, dict):
        batch = batch.values()
    elif not isinstance(batch, list | tuple):
        yield batch
        return
    for one in batch:
        yield from _leaves(one)


def _shape(batch: Any) -> Any:
    if isinstance(batch, dict):
        return type(batch), [(key, _shape(value)) for key, value in batch.items()]
    if isinstance(batch, list | tuple):
        return type(batch), [_shape(one) for one in batch]
    return type(batch)


@pytest.mark.parametrize("what", sorted(WHOLE))
def test_structure_of_batches_that_travel_whole(what: str) -> None:
    want = WHOLE[what]
    got = through([want] * 5)
    assert len(got) == 5
    assert all(same(one, want) for one in got), got[0]


@pytest.mark.parametrize("make", [Pair, Record])
def test_a_leaf_per_field_of_a_class(make: Any) -> None:
    want = make(x(B, 3), torch.arange(B))
    (got,) = through([want])
    assert type(got) is make
    assert same(got, want)


def test_a_defaultdict_is_at_least_a_dict_with_the_same_items() -> None:
    want = defaultdict(list, {"a": x(B, 3), "b": torch.arange(B)})
    (got,) = through([want])
    assert isinstance(got, dict)
    assert same(dict(got), dict(want))


def show_types(name: str) -> None:
    """Types by name, in a process that has never seen the batch."""
    with feedline.attach(name) as feed:
        batch = next(iter(feed))
    say(
        "done",
        outer=f"{type(batch).__module__}.{type(batch).__qualname__}",
        is_the_same=isinstance(batch, loaders.Pair),
        inner=type(batch.y).__name__,
        sums=[float(np.asarray(batch.x).sum()), float(np.asarray(batch.y.image).sum())],
        source=batch.y.source,
    )


def test_classes_arrive_in_another_process(start: Start) -> None:
    image = np.arange(B, dtype=np.float64)
    batch = Pair(np.ones((B, 2)), Record(image=image, label=np.arange(B), source="über"))
    with feedline.Server([batch], "train", epochs=1):
        report = start(show_types, name="train").expect("done")
    assert report["outer"] == "support.loaders.Pair"
    assert report["is_the_same"]
    assert report["inner"] == "Record"
    assert report["sums"] == [2.0 * B, 15.0]
    assert report["source"] == "über"


def test_whole_batches_whose_shapes_vary() -> None:
    batches = [{"tokens": x(B, n)} for n in (17, 3, 0, 21, 400)] + [{"tokens": x(2, 9)}]
    got = through(batches, whole_batches=True)
    assert all(map(same, got, batches))


def test_whole_batches_many_turns_of_the_ring() -> None:
    """Ragged batches of all sizes through a ring that holds few of them, next to a hoarder."""
    sizes = [(i * 7919) % 97 for i in range(1500)]
    batches = [{"x": [np.full(n, i, np.int32)], "name": f"batch {i}"} for i, n in enumerate(sizes)]
    with (
        feedline.Server(batches, "train", epochs=2, ring="64KB"),
        feedline.attach("train") as feed,
    ):
        for _ in range(2):
            kept = list(feed)
            assert all(map(same, kept, batches))
