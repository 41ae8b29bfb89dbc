"""The numbers of a feed are a DataLoader's: samples of its dataset, batch size, what is dropped."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline

SAMPLES = 650
LOADER_BATCH = 64


def loader(**options: Any) -> DataLoader[Any]:
    dataset = TensorDataset(torch.arange(SAMPLES).float()[:, None], torch.arange(SAMPLES))
    return DataLoader(dataset, **{"batch_size": LOADER_BATCH, **options})


@pytest.fixture
def server() -> Iterator[feedline.Server]:
    with feedline.Server(loader(), "train", history=1.0) as server:
        yield server


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Torch warns of iterable datasets that yield more than their length."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def ids(batches: Any) -> list[int]:
    return [int(i) for _, labels in batches for i in labels]


def numbers(loader: Any) -> dict[str, Any]:
    return {
        "samples": len(loader.dataset),
        "sampled": len(loader.sampler),
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "batches": len(loader),
        "batch_sampler": len(loader.batch_sampler),
        "of": (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last),
        "read": [len(labels) for _, labels in loader],
    }


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 13, 48, 64, 650, 700])
def test_they_are_those_of_a_data_loader(
    server: feedline.Server, batch_size: int, drop_last: bool
) -> None:
    wanted: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last}
    with feedline.attach("train", **wanted) as feed:
        assert numbers(feed) == numbers(loader(**wanted))


def test_without_a_batch_size_they_are_the_loader_s(server: feedline.Server) -> None:
    with feedline.attach("train") as feed:
        assert numbers(feed) == numbers(loader())


def sentences(rows: list[Any]) -> list[str]:
    return ["x" * int(label) for _, label in rows]


def test_batches_that_cannot_be_cut_have_the_loader_s_numbers() -> None:
    served = loader(collate_fn=sentences)
    with feedline.Server(served, "train"), feedline.attach("train") as feed:
        found: Any = feed
        assert (len(found.dataset), found.batch_size, len(found)) == (SAMPLES, LOADER_BATCH, 11)
        around = DataLoader(found.dataset, found.batch_size, collate_fn=found.collate_fn)
        assert len(around) == 11
        assert list(around) == list(served)


def test_batches_of_sizes_that_nobody_knows_are_what_is_counted() -> None:
    """As with torch's `batch_size=None`: an item of the dataset is what the loader yields."""
    ragged = [["a"], ["b", "c"], ["d"]]
    with feedline.Server(ragged, "train"), feedline.attach("train", format="torch") as feed:
        found: Any = feed
        assert (found.batch_size, found.drop_last, found.batch_sampler) == (None, False, None)
        assert (len(found), len(found.dataset), len(found.sampler)) == (3, 3, 3)
        around = DataLoader(found.dataset, batch_size=None, collate_fn=found.collate_fn)
        assert (len(around), list(around)) == (3, ragged)


def test_a_length_that_is_not_known_is_a_type_error() -> None:
    asked = threading.Event()

    class Unknown:
        def __iter__(self) -> Iterator[torch.Tensor]:
            first, *others = torch.arange(100).split(10)
            yield first
            asked.wait()
            yield from others

    with feedline.Server(Unknown(), "train"), feedline.attach("train", batch_size=8) as feed:
        found: Any = feed
        for part in (found, found.dataset, found.sampler, found.batch_sampler):
            with pytest.raises(TypeError, match="not known before its first epoch has ended"):
                len(part)
        asked.set()
        assert sum(map(len, found)) == 100
        assert [len(found), len(found.dataset), len(found.sampler)] == [13, 100, 100]


def test_a_shard_s_dataset_is_everybody_s_and_its_sampler_its_own(server: feedline.Server) -> None:
    """As with a DistributedSampler."""
    feed: Any = feedline.attach("train", batch_size=10, shard=(0, 4))
    assert (len(feed.dataset), len(feed.sampler), feed.batch_size) == (650, 163, 10)


@pytest.mark.parametrize("batch_size", [48, 20, 100])
def test_a_loader_around_the_dataset_has_them_too(server: feedline.Server, batch_size: int) -> None:
    """Rows of one batch are that batch, of others one cut and joined."""
    feed: Any = feedline.attach("train", batch_size=48)
    loaders: list[Any] = [
        DataLoader(feed.dataset, batch_size, collate_fn=feed.collate_fn),
        DataLoader(feed.dataset, batch_size),
        type(feed)(dataset=feed.dataset, batch_size=batch_size),
    ]
    for again in loaders:
        sizes = [len(labels) for _, labels in again]
        full, rest = divmod(SAMPLES, batch_size)
        assert sizes == [batch_size] * full + [rest]
        assert len(again) == len(sizes)
        assert len(again.dataset) == SAMPLES
        assert ids(again) == list(range(SAMPLES))


def test_a_loader_around_the_dataset_hands_on_the_batch_itself(server: feedline.Server) -> None:
    """Not a copy: it points into the ring."""
    seen: list[Any] = []

    def note(batch: Any) -> Any:
        seen.append(batch)
        return batch

    feed: Any = feedline.attach("train", batch_size=48, transform=note)
    around = DataLoader(feed.dataset, 48, collate_fn=feed.collate_fn)
    assert all(batch is seen[-1] for batch in around)


def test_a_row_is_a_sample(server: feedline.Server) -> None:
    feed: Any = feedline.attach("train", batch_size=48, transform=lambda b: {"x": b[0], "y": b[1]})
    rows = list(feed.dataset)
    assert [int(row["y"]) for row in rows] == list(range(SAMPLES))
    sent = pickle.loads(pickle.dumps(rows[50]))
    assert (sent.sample["y"], sent.sample["x"].shape) == (50, (1,))


def test_what_a_transform_made_of_a_batch_need_not_be_cut(server: feedline.Server) -> None:
    feed: Any = feedline.attach("train", batch_size=48, transform=lambda b: (b[0].mean(), "x"))
    assert len(list(DataLoader(feed.dataset, 48))) == 14
    with pytest.raises(TypeError, match="this batch of a feed cannot be cut: 48 samples have"):
        list(DataLoader(feed.dataset, 40))


@pytest.mark.parametrize("make", [copy.deepcopy, lambda feed: pickle.loads(pickle.dumps(feed))])
def test_a_copy_has_them_too(server: feedline.Server, make: Any) -> None:
    feed = feedline.attach("train", batch_size=48, drop_last=True)
    assert numbers(make(feed)) == numbers(feed)


@pytest.mark.parametrize("given", [20, 60, 96, 640, 645])
def test_a_state_in_the_middle_of_a_batch_has_exactly_the_rest(
    server: feedline.Server, given: int
) -> None:
    """The dataset's: what a loader around it has not asked for comes after the state is loaded."""
    feed: Any = feedline.attach("train", batch_size=48)
    rows = iter(feed.dataset)
    before = [int(next(rows)[1]) for _ in range(given)]
    state = feed.dataset.state_dict()
    another: Any = feedline.attach("train", batch_size=48)
    another.dataset.load_state_dict(state)
    assert before + ids(another) == list(range(SAMPLES))


def test_mnist_s_test_loop() -> None:
    """Divides by `len(test_loader.dataset)`, as pytorch/examples does."""

    def model(data: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(data[:, 0].long(), SAMPLES).float() * 100

    with feedline.Server(loader(batch_size=1000), "test"), feedline.attach("test") as feed:
        test_loader: Any = feed
        test_loss = 0.0
        correct = 0
        for data, target in test_loader:
            output = torch.log_softmax(model(data), dim=1)
            test_loss += torch.nn.functional.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += int(pred.eq(target.view_as(pred)).sum().item())
        test_loss /= len(test_loader.dataset)
        whole = len(test_loader.dataset)
        share = 100.0 * correct / whole
    printed = f"Average loss: {test_loss:.4f}, Accuracy: {correct}/{whole} ({share:.0f}%)"
    assert printed == "Average loss: 0.0000, Accuracy: 650/650 (100%)"


def test_what_only_the_original_dataset_has_is_said_so(server: feedline.Server) -> None:
    feed: Any = feedline.attach("train", batch_size=50)
    with pytest.raises(AttributeError) as missing:
        _ = feed.dataset.classes
    why, what_to_do = str(missing.value).splitlines()
    assert why.startswith("the dataset of feed \"train\" has no attribute 'classes': it yields")
    assert what_to_do == "  keep a reference to the loader's own dataset, and ask that one"
    assert not hasattr(feed.dataset, "targets")
    with pytest.raises(NotImplementedError, match='feed "train" cannot be indexed') as refused:
        _ = feed.dataset[0]
    assert str(refused.value).splitlines()[1] == what_to_do
    again = pickle.loads(pickle.dumps(feed.dataset))
    assert len(copy.copy(again)) == SAMPLES


def test_users_see_one_name_of_its_class(server: feedline.Server) -> None:
    """Lightning and torch name the class of a loader in their warnings."""
    feed = feedline.attach("train", batch_size=50)
    assert isinstance(feed, DataLoader)
    assert type(feed).__name__ == feedline.Feed.__name__
    assert repr(feed) == "<feedline.Feed 'train', batch_size=50>"
