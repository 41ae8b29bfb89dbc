"""What a dataset or its workers do wrong, under a name: each job gets the error that it expects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import feedline
from dataloader.datasets import Numbers
from feedline import DataLoader
from support.waiting import eventually


def deadly(number: int) -> int:
    """End the worker that makes sample 13."""
    if number == 13:
        os._exit(3)
    return number


def raising(number: int) -> int:
    """Raise for sample 13."""
    if number == 13:
        raise ValueError("no 13")
    return number


def loader(make: Any, batch_size: int = 4, **keywords: Any) -> Any:
    """One job's loader."""
    arguments = {"num_workers": 2, "linger_secs": 0.1, **keywords}
    return DataLoader(Numbers(32, make), batch_size, name="errors", **arguments)


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone, and forget what it left on failing."""
    yield
    eventually(lambda: not feedline.feeds())
    for file in folder.iterdir():
        file.unlink()


def test_a_sample_that_ends_its_workers_is_a_worker_error_for_every_job() -> None:
    with loader(deadly) as one, loader(deadly, 6) as other:
        for job in (one, other):
            seen = []
            with pytest.raises(feedline.WorkerError) as caught:
                seen += [batch.tolist() for batch in job]
            assert isinstance(caught.value, feedline.LoaderError)
            assert isinstance(caught.value, RuntimeError), "as torch's is"
            assert "sample 13 of Numbers ended its worker process, 3 times" in str(caught.value)
    # Whoever comes after the server has gone, and before it is started again, hears of it too.
    with pytest.raises(feedline.WorkerError), loader(deadly, 16) as late:
        list(late)


def test_what_a_dataset_raises_is_of_its_own_class_and_no_worker_error() -> None:
    with loader(raising) as one:
        with pytest.raises(ValueError, match="no 13") as caught:
            list(one)
        assert isinstance(caught.value, feedline.LoaderError)
        assert not isinstance(caught.value, feedline.WorkerError)
