"""A batch that can't be handed over because memory ran out is not held for ever."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import feedline

_testcapi: Any = pytest.importorskip("_testcapi")


def test_a_capsule_that_cannot_be_made_ends_its_lease() -> None:
    """Python is out of memory at the first allocation, then at the second, and so on."""
    with (
        feedline.Server([np.arange(8)], "train", epochs=1),
        feedline.attach("train", format="numpy") as feed,
    ):
        batch = next(iter(feed))
        exported: Any = batch.base.obj if isinstance(batch.base, memoryview) else batch.base
        refused = 0
        # No other thread may be the one that gets no memory.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        for allocation in range(100):
            _testcapi.set_nomemory(allocation, allocation + 1)
            try:
                capsule = exported.__dlpack__()
            except MemoryError:
                refused += 1
                continue
            finally:
                _testcapi.remove_mem_hooks()
            del capsule
            break
        sys.setswitchinterval(interval)
        assert refused > 0
        assert feed.stats()["leases"] == 1
        del batch, exported
        gc.collect()
        assert feed.stats()["leases"] == 0
