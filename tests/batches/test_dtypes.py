"""Every dtype of the schema, and tensors of every memory layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feedline
from batches.test_structure import same, through

torch = pytest.importorskip("torch")

NUMPY = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
TORCH = [*NUMPY, "bfloat16"]

N = 24


def random_array(dtype: str, shape: tuple[int, ...]) -> Any:
    """Random bits, NaNs with payloads among them: nothing may be normalised on the way."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(7)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    count = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer(rng.bytes(count), dtype=kind).reshape(shape).copy()


def random_tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype == "bfloat16":
        return torch.from_numpy(random_array("int16", shape)).view(torch.bfloat16)
    return torch.from_numpy(random_array(dtype, shape))


def check_whole_and_cut(want: Any) -> None:
    assert all(same(got, want) for got in through([want, want]))
    first, second = through([want], batch_size=N - 1)
    assert same(first, want[: N - 1])
    assert same(second, want[N - 1 :])


@pytest.mark.parametrize("dtype", NUMPY)
def test_numpy(dtype: str) -> None:
    check_whole_and_cut(random_array(dtype, (N, 3, 2)))


@pytest.mark.parametrize("dtype", TORCH)
def test_torch(dtype: str) -> None:
    check_whole_and_cut(random_tensor(dtype, (N, 3, 2)))


@pytest.mark.parametrize("dtype", TORCH)
def test_all_of_them_in_whole_batches(dtype: str) -> None:
    want = {"a": random_tensor(dtype, (N, 2)), "0-d": random_tensor(dtype, (1,))[0], "s": "text"}
    (got,) = through([want])
    assert same(got, want)


def test_all_of_them_side_by_side_in_one_batch() -> None:
    want = {f"t {name}": random_tensor(name, (N, 5)) for name in TORCH}
    want |= {f"n {name}": random_array(name, (N, 3)) for name in NUMPY}
    batches = [want] * 40
    with (
        feedline.Server(batches, "train", epochs=1, ring=3 * N),
        feedline.attach("train", batch_size=N // 2) as feed,
    ):
        for number, got in enumerate(feed):
            half = slice(0, N // 2) if number % 2 == 0 else slice(N // 2, N)
            assert same(got, {name: leaf[half] for name, leaf in want.items()})


LAYOUTS: dict[str, Any] = {
    "transposed": torch.arange(N * 6).reshape(6, N).t(),
    "permuted": torch.arange(N * 12).reshape(3, 4, N).permute(2, 0, 1),
    "every second": torch.arange(2 * N * 3).reshape(2 * N, 3)[::2],
    "columns": torch.arange(N * 9).reshape(N, 9)[:, 2:7:2],
    "expanded": torch.arange(3).expand(N, 3),
    "expanded rows": torch.arange(N).unsqueeze(1).expand(N, 4),
    "channels last": torch.arange(N * 24.0)
    .reshape(N, 2, 3, 4)
    .to(memory_format=torch.channels_last),
    "with an offset": torch.arange(N * 3 + 5)[5:].reshape(N, 3),
    "requires grad": torch.ones(N, 3, requires_grad=True),
    "inside a graph": torch.ones(N, 3, requires_grad=True) * 2,
    "conjugated": torch.randn(N, 3, dtype=torch.complex64).conj(),
    "negated": torch.randn(N, 3, dtype=torch.complex64).conj().imag,
    "fortran array": np.asfortranarray(np.arange(N * 4).reshape(N, 4)),
    "reversed array": np.arange(N * 4).reshape(N, 4)[::-1, ::-1],
    "broadcast array": np.broadcast_to(np.arange(4), (N, 4)),
    "unaligned array": np.frombuffer(bytes(range(N * 4 + 1)), np.uint8)[1:].view("<u4"),
    "field of a record array": np.zeros(N, dtype=[("a", "<f4"), ("b", "<i2")])["b"],
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_layouts(layout: str) -> None:
    source = LAYOUTS[layout]
    want = (
        source.detach().resolve_conj().resolve_neg().contiguous()
        if isinstance(source, torch.Tensor)
        else np.ascontiguousarray(source)
    )
    (got,) = through([source])
    assert same(got, want)
    first, second = through([source], batch_size=N - 5)
    assert same(first, want[: N - 5])
    assert same(second, want[N - 5 :])


def test_a_read_only_array() -> None:
    want = np.arange(N * 3).reshape(N, 3)
    want.flags.writeable = False
    (got,) = through([want])
    assert same(got, want)
    got[0] = 1


def test_a_big_endian_array_keeps_its_values() -> None:
    want = np.arange(N, dtype=">i4")
    (got,) = through([{"label": want}])
    assert np.array_equal(got["label"], want)
    assert got["label"].dtype == np.int32


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (np.zeros(N, dtype=object), "object"),
        (np.zeros(N, dtype=[("a", "<f4"), ("b", "<i2")]), "a"),
        (np.zeros(N, dtype="datetime64[s]"), "datetime64"),
        (np.zeros(N, dtype=np.longdouble), "longdouble|float128"),
        (np.ma.masked_equal(np.arange(N), 3), "Masked"),
        (torch.eye(N).to_sparse(), "sparse"),
        (torch.empty(N, 3, device="meta"), "meta"),
    ],
    ids=["object", "record", "datetime", "longdouble", "masked", "sparse", "meta"],
)
def test_what_the_schema_lacks_is_refused_with_the_fields_name(leaf: Any, kind: str) -> None:
    server = feedline.Server([{"image": {"extra": leaf}}], "train", epochs=1)
    server.start()
    with pytest.raises(feedline.SchemaError, match=kind) as error:
        # Were it accepted, the server would wait for a reader.
        server.wait(timeout_secs=60)
    assert "extra" in str(error.value)
    server.stop()
