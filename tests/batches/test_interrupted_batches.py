"""An interruption while a batch is put together: it arrives as it is, and the batch is not lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import feedline


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt is not."""


class Touchy(OrderedDict[str, Any]):
    """A mapping whose constructor, which runs in the consumer, is where Ctrl-C hits."""

    raises: type[BaseException] | None = None

    def __init__(self, *args: Any) -> None:
        error, Touchy.raises = Touchy.raises, None
        if error is not None:
            raise error("now")
        super().__init__(*args)


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    yield
    Touchy.raises = None


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop, SystemExit])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_the_batch_comes_again(error: type[BaseException], batch_size: int | None) -> None:
    """Every sample exactly once, Ctrl-C in a notebook or not."""
    batches = [Touchy({"x": np.arange(start, start + 4)}) for start in range(0, 40, 4)]
    with (
        feedline.Server(batches, "train", epochs=1),
        feedline.attach("train", batch_size=batch_size, format="numpy") as feed,
    ):
        iterator = iter(feed)
        got = []
        for _ in range(3):
            got.append(next(iterator))
            Touchy.raises = error
            with pytest.raises(error, match="now"):
                next(iterator)
        got += iterator
        assert [key for batch in got for key in batch["x"].tolist()] == list(range(40))
        assert all(type(batch) is Touchy for batch in got)
