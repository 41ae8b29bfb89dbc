"""The page "What arrives": each line of its table of what becomes plainer."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from batches.test_structure import through

torch = pytest.importorskip("torch")

N = 6


class Level(IntEnum):
    LOW = 1


class Foreign:
    """An array of a library that we don't know."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(N)


def test_gradients_stay_behind() -> None:
    leaf = torch.ones(N, requires_grad=True)
    (got,) = through([{"leaf": leaf, "in a graph": leaf * 2}])
    assert not got["leaf"].requires_grad
    assert got["in a graph"].grad_fn is None
    assert got["in a graph"].tolist() == [2.0] * N


def test_lazy_values_are_written_out() -> None:
    want = torch.randn(N, 2, dtype=torch.complex64)
    (got,) = through([(want.conj(), want.conj().imag)])
    assert not got[0].is_conj()
    assert torch.equal(got[0], want.conj().resolve_conj())
    assert not got[1].is_neg()
    assert torch.equal(got[1], -want.imag)


def test_leaves_over_the_same_memory_are_apart() -> None:
    base = torch.zeros(N, 4)
    (got,) = through([(base, base, base[:, :2])])
    got[0][:] = 1
    assert got[1].sum() == 0
    assert got[2].sum() == 0


def test_attributes_of_a_plain_tensor_are_lost() -> None:
    tensor = torch.zeros(N)
    tensor.note = "mine"
    (got,) = through([tensor])
    assert vars(got) == {}


def test_byte_order_and_bits() -> None:
    odd = np.arange(N, dtype=np.uint8).view(np.bool_)
    (got,) = through([(np.arange(N, dtype=">u4"), odd, torch.from_numpy(odd))])
    assert got[0].dtype == np.dtype("=u4")
    assert got[0].tolist() == list(range(N))
    assert got[1].view(np.uint8).tolist() == list(range(N))
    assert got[2].view(torch.uint8).tolist() == list(range(N))


def test_elements_that_a_stride_of_zero_repeats() -> None:
    (got,) = through([torch.arange(3).expand(N, 3)])
    got[0] = 7
    assert got[1:].tolist() == [[0, 1, 2]] * (N - 1)


@pytest.mark.parametrize(
    ("yielded", "arrives"),
    [
        (defaultdict(int, a=1), dict),
        (OrderedDict(a=1), OrderedDict),
        (UserDict(a=1), UserDict),
        (torch.Size([2, 3]), tuple),
        (Level.LOW, int),
        (np.float32(0.5), np.float32),
        (np.array(3), np.ndarray),
        (torch.tensor(3), torch.Tensor),
        (Foreign(), np.ndarray),
    ],
    ids=lambda value: type(value).__name__,
)
def test_types(yielded: Any, arrives: type[Any]) -> None:
    (got,) = through([{"x": yielded}], whole_batches=True)
    assert type(got["x"]) is arrives
    if not isinstance(yielded, Foreign):
        assert got["x"] == yielded
