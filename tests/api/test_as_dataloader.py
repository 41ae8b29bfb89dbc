"""A feed passes for a DataLoader: rebuilt, pickled, forked, moved, transformed."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import feedline
from support.waiting import eventually

SAMPLES = 650


@pytest.fixture
def server() -> Iterator[feedline.Server]:
    dataset = TensorDataset(torch.arange(SAMPLES).float()[:, None], torch.arange(SAMPLES))
    with feedline.Server(DataLoader(dataset, batch_size=64), "train", history=1.0) as server:
        yield server


def ids(batches: Any) -> list[int]:
    return [int(i) for _, labels in batches for i in labels]


ALL = list(range(SAMPLES))


def test_it_is_a_data_loader_over_an_iterable_dataset(server: feedline.Server) -> None:
    feed: Any = feedline.attach("train", batch_size=48)
    assert isinstance(feed, DataLoader)
    assert isinstance(feed, feedline.Feed)
    assert isinstance(feed.dataset, IterableDataset)
    parts: list[Any] = [feed, feed.dataset, feed.sampler]
    assert feed.num_workers == 0
    for part in parts:
        part.set_epoch(3)
    assert ids(feed) == ALL
    assert [int(label) for _, label in feed.dataset] == ALL


def test_looking_at_it_joins_nothing(server: feedline.Server) -> None:
    feed = feedline.attach("train", batch_size=48)
    for _ in range(3):
        iter(feed)
        iter(feed.dataset)  # type: ignore[attr-defined]
        len(feed)
    assert not any(one["joined"] for one in server.stats()["consumers"])
    assert ids(feed) == ALL


@pytest.mark.parametrize("keywords", [{}, {"batch_size": None, "num_workers": 0, "sampler": None}])
def test_it_can_be_made_anew_around_its_dataset(
    server: feedline.Server, keywords: dict[str, Any]
) -> None:
    feed: Any = feedline.attach("train", batch_size=48)
    again = type(feed)(dataset=feed.dataset, **keywords)
    assert ids(again) == ALL
    assert len(again) == 14
    around = DataLoader(feed.dataset, batch_size=48)
    assert [len(labels) for _, labels in around] == [48] * 13 + [26]
    assert ids(around) == ALL


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_of_the_workers_of_a_loader_around_it_one_reads(
    server: feedline.Server, workers: int
) -> None:
    feed: Any = feedline.attach("train", batch_size=48)
    loader: Any = DataLoader(feed.dataset, batch_size=48, num_workers=workers)
    assert ids(loader) == ALL


def test_state_goes_with_the_dataset(server: feedline.Server) -> None:
    feed: Any = feedline.attach("train", batch_size=50)
    rows = iter(feed.dataset)
    for _ in range(50):
        next(rows)
    state = feed.dataset.state_dict()
    assert state == {**feed.state_dict(), "epoch": 0, "sample": 50}
    another: Any = feedline.attach("train", batch_size=100)
    another.dataset.load_state_dict(state)
    iter(another.dataset)  # nobody asks it for a batch
    assert ids(another) == ALL[50:]


def read_all(feed: Any, results: Any) -> None:
    results.put((len(feed), ids(feed)))


@pytest.mark.processes
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_another_process_has_a_place_of_its_own(server: feedline.Server, method: str) -> None:
    feed = feedline.attach("train", batch_size=48)
    batches = iter(feed)
    first = next(batches)
    context: Any = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    child = context.Process(target=read_all, args=(feed, results))
    child.start()
    assert results.get() == (14, ALL)
    child.join()
    assert ids([first, *batches]) == ALL


def double(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = batch
    return images.mul_(2), labels


@pytest.mark.parametrize("make", [lambda feed: pickle.loads(pickle.dumps(feed)), copy.deepcopy])
def test_a_copy_attaches_when_it_is_used(server: feedline.Server, make: Any) -> None:
    feed = feedline.attach("train", batch_size=48, transform=double)
    attached = len(server.stats()["consumers"])
    again = make(feed)
    assert type(again) is type(feed)
    assert isinstance(again, feedline.Feed)
    assert len(server.stats()["consumers"]) == attached
    assert ids(again) == ALL
    assert [float(x) for xs, _ in again for x in xs] == [2.0 * i for i in ALL]
    assert ids(feed) == ALL


@pytest.mark.parametrize("transform", [None, double])
@pytest.mark.parametrize("make", [lambda feed: pickle.loads(pickle.dumps(feed)), copy.deepcopy])
def test_a_copy_of_an_iterator_begins_an_epoch_of_its_own(
    server: feedline.Server, make: Any, transform: Any
) -> None:
    """As a copy of the feed does; frameworks copy loops together with their live iterators."""
    feed = feedline.attach("train", batch_size=48, transform=transform)
    batches = iter(feed)
    first = next(batches)
    again = make(batches)
    assert ids([first, *batches]) == ALL
    assert ids(again) == ALL


def test_a_copy_of_a_transform_that_has_no_name(server: feedline.Server) -> None:
    feed = feedline.attach("train", transform=lambda batch: batch)
    with pytest.raises(pickle.PicklingError, match="at the top of a module"):
        pickle.dumps(feed)


def test_a_copy_of_a_feed_that_is_gone_can_be_made_and_says_so() -> None:
    with feedline.Server([np.arange(4)], "train") as server:
        eventually(lambda: bool(server.stats()["batches"]))
        text = pickle.dumps(feedline.attach("train", timeout_secs=2))
    feed = pickle.loads(text)
    with pytest.raises(feedline.FeedNotFoundError, match='no feed named "train"'):
        next(iter(feed))


def test_jobs_transform_differently(server: feedline.Server) -> None:
    """In place, in memory that they share: nobody sees another's."""

    def times(k: int) -> Any:
        return lambda batch: (batch[0].mul_(k), batch[1])

    feeds = [feedline.attach("train", batch_size=48, transform=times(k)) for k in (1, 2, 3)]
    for epoch in range(2):
        for row in zip(*feeds, strict=True):
            for k, (images, labels) in zip((1, 2, 3), row, strict=True):
                assert torch.equal(images[:, 0], labels * k), (epoch, k)


def test_what_a_transform_raises_is_raised(server: feedline.Server) -> None:
    feed = feedline.attach("train", batch_size=50, transform=lambda b: b[1][0] / 0 if b else b)
    with pytest.raises(ValueError, match="no"):
        next(iter(feedline.attach("train", transform=_raise)))
    with pytest.raises(RuntimeError, match="transform of feed"):
        list(feedline.attach("train", transform=lambda batch: next(iter(()))))
    assert next(iter(feed)).isnan()
    with pytest.raises(feedline.FeedValueError, match="not a function"):
        feedline.attach("train", transform=3)  # type: ignore[arg-type]


def _raise(batch: object) -> object:
    raise ValueError("no")


class Pair(NamedTuple):
    image: Any
    more: Any


def test_a_device_gets_everything_in_a_batch() -> None:
    """The meta device stands for a GPU: it takes tensors and keeps no bytes."""
    batch = {"x": torch.ones(4, 2), "pair": Pair(torch.ones(4), [torch.ones(4)]), "name": "four"}
    with feedline.Server([batch] * 3, "train"):
        feed = feedline.attach("train", device="meta", transform=lambda b: {**b, "y": b["x"] + 1})
        found = next(iter(feed))
    assert found["name"] == "four"
    assert isinstance(found["pair"], Pair)
    tensors = [found["x"], found["y"], found["pair"].image, found["pair"].more[0]]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 4


def test_what_moves_itself_and_mappings_of_all_kinds_go_to_the_device() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])

    def odd(batch: Any) -> Any:
        return [UserDict(x=batch), defaultdict(list, x=batch), OrderedDict(x=batch), packed]

    with feedline.Server([torch.ones(4)], "train"):
        user, default, ordered, moved = next(
            iter(feedline.attach("train", device="meta", transform=odd))
        )
    assert (type(user), type(default), type(ordered)) == (UserDict, defaultdict, OrderedDict)
    tensors = [user["x"], default["x"], ordered["x"], moved.data]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 4


def test_a_device_takes_arrays_for_tensors() -> None:
    with feedline.Server([np.arange(4)], "train"):
        assert next(iter(feedline.attach("train", device="cpu"))).device.type == "cpu"


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, 'device="cuda" cannot be used: '),
        ({"device": "cuda:7"}, 'device="cuda:7" cannot be used: '),
        ({"device": "gpu"}, 'device="gpu" cannot be used: '),
        ({"pin_memory": True}, "pin_memory=True is for copies to a GPU, and torch finds none"),
    ],
)
def test_without_a_gpu(server: feedline.Server, options: dict[str, Any], message: str) -> None:
    with pytest.raises(feedline.FeedlineError) as raised:
        feedline.attach("train", **options)
    assert message in str(raised.value)


def test_devices_are_torchs() -> None:
    with pytest.raises(feedline.FeedValueError, match="for torch tensors"):
        feedline.attach("train", device="cpu", format="numpy")


def test_no_framework_is_imported_unasked() -> None:
    code = (
        "import sys, feedline, numpy as np\n"
        "with feedline.Server([np.arange(4)], 'train'), feedline.attach('train') as feed:\n"
        "    next(iter(feed))\n"
        "heavy = {'torch', 'jax', 'tensorflow', 'keras', 'lightning', 'transformers', 'ray'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
