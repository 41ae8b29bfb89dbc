"""Tensors of subclasses come back as they were, or are refused with the field's name."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from batches.test_structure import through
from conftest import Start
from feedline import _batch_classes
from support.child import say

torch = pytest.importorskip("torch")

N = 12


class Unit(enum.Enum):
    PIXELS = "px"
    MILLIMETRES = "mm"


class Boxes(torch.Tensor):  # type: ignore[misc, name-defined]
    """As torchvision's BoundingBoxes are: a class, and attributes of the instance."""


class Keeping(torch.Tensor):  # type: ignore[misc, name-defined]
    """Returns plain tensors from every operation, as tv_tensors do."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Computed(torch.Tensor):  # type: ignore[misc, name-defined]
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


class Slotted(torch.Tensor):  # type: ignore[misc, name-defined]
    __slots__ = ("scale",)


class Matrix(np.ndarray[Any, Any]):
    pass


ATTRIBUTES: dict[str, Any] = {
    "unit": Unit.MILLIMETRES,
    "canvas_size": (480, 640),
    "scales": [0.5, -0.0],
    "mode": "soft",
    "note": None,
    "is_clamped": True,
}


def boxes(samples: int = N, **attributes: Any) -> Any:
    made = torch.arange(samples * 8.0).reshape(samples, 2, 4).as_subclass(Boxes)
    vars(made).update(attributes)
    return made


def check(got: Any, first: int, until: int) -> None:
    assert type(got) is Boxes
    assert vars(got) == ATTRIBUTES
    assert [type(value) for value in vars(got).values()] == [type(v) for v in ATTRIBUTES.values()]
    assert torch.equal(
        got.as_subclass(torch.Tensor), boxes().as_subclass(torch.Tensor)[first:until]
    )


@pytest.mark.parametrize("mode", ["cow", "copy", "readonly"])
def test_class_and_attributes_survive_cutting(mode: Any) -> None:
    batch = {"boxes": boxes(**ATTRIBUTES), "label": torch.arange(N)}
    with (
        feedline.Server([batch], "train", epochs=1),
        feedline.attach("train", batch_size=5, mode=mode) as feed,
    ):
        for number, got in enumerate(feed):
            check(got["boxes"], number * 5, min(number * 5 + 5, N))
            assert type(got["label"]) is torch.Tensor


def test_class_and_attributes_survive_whole_batches() -> None:
    for got, name in through([(boxes(**ATTRIBUTES), "a name")] * 3):
        check(got, 0, N)
        assert name == "a name"


def test_a_class_whose_operations_give_plain_tensors() -> None:
    want = torch.arange(N * 3).reshape(3, N).t().as_subclass(Keeping)
    for got in through([want, want]):
        assert type(got) is Keeping
        assert torch.equal(got, want)


def test_a_parameter_is_one_and_asks_for_no_gradient() -> None:
    (got,) = through([torch.nn.Parameter(torch.ones(N, 3))])
    assert type(got) is torch.nn.Parameter
    assert not got.requires_grad


def test_other_formats_are_plain() -> None:
    with (
        feedline.Server([boxes(**ATTRIBUTES)] * 2, "train", epochs=1),
        feedline.attach("train", format="numpy") as feed,
    ):
        assert all(type(got) is np.ndarray for got in feed)


def test_attributes_that_change_are_named() -> None:
    batches = [{"b": boxes(canvas_size=size)} for size in [(10, 10), (10, 10), (20, 10)]]
    server = feedline.Server(batches, "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError) as error:
        list(feedline.attach("train", batch_size=N))
    text = str(error.value)
    for part in ['batch["b"].canvas_size', "(10, 10)", "(20, 10)", "whole_batches=True"]:
        assert part in text
    server.stop()


def test_attributes_may_change_from_one_whole_batch_to_the_next() -> None:
    sizes = [(10, 10), (20, 10), (7, 8)]
    got = through([boxes(canvas_size=size) for size in sizes], whole_batches=True)
    assert [batch.canvas_size for batch in got] == sizes


def test_another_class_is_a_change_of_type() -> None:
    server = feedline.Server([boxes(), boxes().as_subclass(Keeping)], "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError, match=r"Boxes.*Keeping"):
        list(feedline.attach("train", batch_size=N))
    server.stop()


def local() -> Any:
    class Local(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    return torch.zeros(N).as_subclass(Local)


def jagged() -> Any:
    return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)


def masked() -> Any:
    return torch.masked.masked_tensor(torch.zeros(N), torch.arange(N) % 2 == 0)


def quantised() -> Any:
    return torch.quantize_per_tensor(torch.zeros(N, 2), 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: boxes(tree={"a": 1}), "attribute tree is a dict"),
        (lambda: boxes(size=(1, (2, 3))), "attribute size is a tuple"),
        (lambda: boxes(scale=torch.ones(1)), "attribute scale is a torch.Tensor"),
        (lambda: torch.zeros(N).as_subclass(Computed), "__torch_dispatch__"),
        (lambda: torch.zeros(N).as_subclass(Slotted), "__slots__"),
        (local, "nobody can import"),
        (jagged, "NestedTensor"),
        (masked, "MaskedTensor"),
        (quantised, "QInt"),
        (lambda: torch.zeros(N, dtype=torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda: np.matrix([[1, 2]] * N), "matrix"),
        (lambda: np.rec.array([(1, 2.0)] * N, dtype=[("a", "<i4"), ("b", "<f4")]), "recarray"),
        (lambda: np.arange(N).view(Matrix), "Matrix"),
        (lambda: np.ma.masked_equal(np.arange(N), 3), "MaskedArray"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_lose_something_is_refused(make: Any, why: str) -> None:
    server = feedline.Server([{"image": torch.zeros(N), "extra": make()}], "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError) as error:
        # Were it accepted, the server would wait for a reader.
        server.wait(timeout_secs=60)
    for part in ['batch["extra"]', why, "allow_pickle=True"]:
        assert part in str(error.value)
    server.stop()


def test_what_is_refused_can_be_pickled() -> None:
    want = boxes(tree={"a": [1]})
    with (
        feedline.Server([want], "train", epochs=1, allow_pickle=True),
        feedline.attach("train", allow_pickle=True) as feed,
    ):
        (got,) = feed
    assert type(got) is Boxes
    assert got.tree == {"a": [1]}


def test_a_memmap_is_an_array_without_its_file(tmp_path: Path) -> None:
    want = np.memmap(tmp_path / "tokens", dtype=np.uint16, mode="w+", shape=(N, 4))
    want[:] = np.arange(N * 4).reshape(N, 4)
    (got,) = through([want[2:]])
    assert type(got) is np.ndarray
    assert np.array_equal(got, want[2:])


def show_class(name: str) -> None:
    with feedline.attach(name) as feed:
        batch = next(iter(feed))
    say(
        "done", is_the_same=type(batch) is Boxes, unit=batch.unit.name, size=list(batch.canvas_size)
    )


def test_the_class_is_found_in_another_process(start: Start) -> None:
    with feedline.Server([boxes(**ATTRIBUTES)], "train", epochs=1):
        report = start(show_class, name="train").expect("done")
    assert (report["is_the_same"], report["unit"]) == (True, "MILLIMETRES")
    assert report["size"] == [480, 640]


def test_a_class_that_is_not_there_is_an_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _batch_classes.tensor_class

    def missing(module: str, _name: str, fields: Any) -> Any:
        return found(module, "Gone", fields)

    monkeypatch.setattr(_batch_classes, "tensor_class", missing)
    with (
        feedline.Server([{"b": boxes()}], "train", epochs=1),
        feedline.attach("train") as feed,
        pytest.raises(feedline.SchemaError, match="Gone") as error,
    ):
        next(iter(feed))
    assert 'batch["b"]' in str(error.value)
    assert 'format="numpy"' in str(error.value)


@pytest.mark.parametrize("name", ["dict", "nothing", "ValueError"])
def test_only_subclasses_of_tensor_are_taken(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        _batch_classes.tensor_class("builtins", name, ())
    with pytest.raises(TypeError, match=name):
        _batch_classes.enum_member("builtins", name, "A")
