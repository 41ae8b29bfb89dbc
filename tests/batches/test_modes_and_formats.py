"""How a batch is handed out: zero-copy, read-only, copied; as torch, as NumPy, without torch."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import say
from support.loaders import Numbered, torch_loader
from support.reading import expected, is_exact, read


def mapping_of(address: int) -> str:
    """Give the name of the mapping that an address lies in."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return line[73:].rstrip()
    raise AssertionError(f"{address:x} is not mapped")


def address_of(leaf: Any) -> int:
    return int(leaf.ctypes.data if isinstance(leaf, np.ndarray) else leaf.data_ptr())


def test_the_yardstick() -> None:
    assert "memfd" not in mapping_of(address_of(np.zeros(10_000_000, np.uint8)))


@pytest.mark.parametrize("format", ["numpy", "torch"])
@pytest.mark.parametrize("mode", ["cow", "readonly"])
def test_views_point_straight_at_the_shared_pages(format: Any, mode: Any) -> None:
    with (
        feedline.Server(Numbered(1000, 10, width=5000), "train", epochs=1, ring=60),
        feedline.attach("train", batch_size=7, format=format, mode=mode) as feed,
    ):
        for x, keys in feed:
            for leaf in (x, keys):
                address = address_of(leaf)
                assert "memfd:" in mapping_of(address)
                assert "memfd:" in mapping_of(address + np.asarray(leaf).nbytes - 1)
            assert np.asarray(x).flags.c_contiguous
        assert feed.stats()["mode"] == mode
        assert feed.stats()["batches"] == 143


def test_readonly_refuses_writes() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=1),
        feedline.attach("train", batch_size=10, mode="readonly", format="numpy") as feed,
    ):
        for batch in feed:
            assert not batch[0].flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                batch[0][0] = 1
            with pytest.raises(ValueError, match="WRITEABLE"):
                batch[0].flags.writeable = True
            assert is_exact(batch)
        assert feed.stats()["mode"] == "readonly"


def test_copy_gives_memory_of_ones_own() -> None:
    with feedline.Server(Numbered(1000, 10), "train", epochs=1, ring=60):
        with feedline.attach("train", batch_size=7, mode="copy") as feed:
            batches = list(feed)
            for x, keys in batches:
                assert "memfd:" not in mapping_of(address_of(x))
                assert "memfd:" not in mapping_of(address_of(keys))
            stats = feed.stats()
            assert (stats["mode"], stats["leases"], stats["kept"]) == ("copy", 0, 0)
        assert read(batches) == expected(0, 1000, 7)
        batches[0][0][:] = 0


@pytest.mark.parametrize("mode", ["cow", "readonly", "copy"])
@pytest.mark.parametrize("source", ["numpy", "torch"])
@pytest.mark.parametrize("format", [None, "numpy", "torch"])
def test_formats(source: str, format: Any, mode: Any) -> None:
    torch = pytest.importorskip("torch")
    loader: Any = Numbered(100, 10) if source == "numpy" else torch_loader(100, 10)
    kind = torch.Tensor if (format or source) == "torch" else np.ndarray
    with (
        feedline.Server(loader, "train", epochs=1),
        feedline.attach("train", batch_size=7, format=format, mode=mode) as feed,
    ):
        batches = list(feed)
        assert all(isinstance(leaf, kind) for batch in batches for leaf in batch)
        assert read(batches) == expected(0, 100, 7)


def test_bfloat16_as_numpy_is_refused_with_the_fields_name() -> None:
    """NumPy has no such type: silently another one would be a lie."""
    torch = pytest.importorskip("torch")
    batch = {"weights": torch.ones(4, 2, dtype=torch.bfloat16)}
    with feedline.Server([batch], "train", epochs=1):
        with pytest.raises(feedline.SchemaError, match="weights") as error:
            next(iter(feedline.attach("train", format="numpy")))
        assert "bfloat16" in str(error.value)
        assert "torch" in str(error.value)


def test_where_torch_is_in_use_a_feed_is_a_dataloader() -> None:
    data = pytest.importorskip("torch.utils.data")
    with (
        feedline.Server(Numbered(100, 10), "train", epochs=1, samples=100),
        feedline.attach("train", batch_size=7) as feed,
    ):
        assert isinstance(feed, data.DataLoader)
        assert feed.num_workers == 0
        assert isinstance(feed.dataset, data.IterableDataset)
        assert read(feed) == expected(0, 100, 7)


class NoTorch(MetaPathFinder):
    """An interpreter in which torch isn't installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def serve_and_consume_without_torch() -> None:
    sys.meta_path.insert(0, NoTorch())
    with (
        feedline.Server(Numbered(1000, 10), "train", epochs=2, ring=60),
        feedline.attach("train", batch_size=7) as feed,
    ):
        readings = [read(feed).as_json() for _ in range(2)]
    say("done", readings=readings, torch="torch" in sys.modules)


def consume_torch_batches_without_torch(name: str) -> None:
    sys.meta_path.insert(0, NoTorch())
    with feedline.attach(name, batch_size=7, format="numpy") as feed:
        say("numpy", **read(feed).as_json())
    next(iter(feedline.attach(name, batch_size=7)))


def test_works_without_torch(start: Start) -> None:
    report = start(serve_and_consume_without_torch).expect("done")
    assert report["readings"] == [expected(epoch, 1000, 7).as_json() for epoch in range(2)]
    assert not report["torch"]


def test_torch_batches_where_torch_is_missing(start: Start) -> None:
    with feedline.Server(torch_loader(100, 10), "train", epochs=2):
        child = start(consume_torch_batches_without_torch, name="train")
        got = child.expect("numpy")
        assert got["keys"] == list(range(100))
        assert got["exact"]
        child.expect_error(feedline.FeedlineError, "torch", 'format="numpy"')


def consume_and_report_imports(name: str) -> None:
    with feedline.attach(name, batch_size=7) as feed:
        got = read(feed)
    say("done", torch="torch" in sys.modules, **got.as_json())


def test_numpy_batches_do_not_import_torch(start: Start) -> None:
    """Importing it takes seconds; a feed of arrays has no use for it."""
    with feedline.Server(Numbered(100, 10), "train", epochs=1):
        report = start(consume_and_report_imports, name="train").expect("done")
    assert report["keys"] == list(range(100))
    assert not report["torch"]
