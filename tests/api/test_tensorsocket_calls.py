"""TensorSocket's producer and consumer step by step: loops, lengths, packing, arguments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline import _stack
from feedline.tensorsocket import TensorConsumer, TensorPayload, TensorProducer
from feedline.tensorsocket import producer as producer_module
from feedline.tensorsocket.consumer import unpack
from feedline.tensorsocket.payload import place
from feedline.tensorsocket.producer import pack
from support.reading import expected, read
from support.tensorsocket_roles import TIGHT, Counter, Told
from support.waiting import eventually


@pytest.fixture(autouse=True)
def no_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "_GATHER_SECS", 0.0)


@contextmanager
def producing(loader: Any, *, epochs: int = 1, **options: Any) -> Iterator[TensorProducer]:
    """Run a producer's loop in a thread of its own until the block is left."""
    producer = TensorProducer(loader, **options)

    def loop() -> None:
        for _ in range(epochs):
            for _ in producer:
                pass
        producer.join()

    with ThreadPoolExecutor(1) as pool:
        ran: Future[None] = pool.submit(loop)
        try:
            yield producer
        except BaseException:
            producer._server.stop()
            raise
        ran.result()


def pairs(samples: int = 100, batch_size: int = 10) -> DataLoader[Any]:
    numbers = torch.arange(samples)
    return DataLoader(TensorDataset(numbers * 2.0, numbers), batch_size=batch_size)


def test_a_torch_loaders_lists_arrive_as_tuples() -> None:
    with producing(pairs()):
        consumer = TensorConsumer(batch_size=30)
        assert len(consumer) == 4
        assert (consumer.data_loader_len, consumer.loader_batch_size) == (10, 10)
        batches = list(consumer)
        assert {type(batch) for batch in batches} == {tuple}
        twice, numbers = (torch.cat(column) for column in zip(*batches, strict=True))
        assert torch.equal(numbers, torch.arange(100))
        assert torch.equal(twice, torch.arange(100) * 2.0)
        consumer.close()


def test_a_producer_knows_its_length_and_who_is_attached() -> None:
    with producing(Told(100, 10), epochs=2) as producer:
        assert len(producer) == producer.data_loader_len == 10
        consumer = TensorConsumer(batch_size=10)
        assert [who["batch_size"] for who in producer.consumers.values()] == [10]
        assert read(consumer) == expected(0, 100, 10)
        assert read(consumer) == expected(1, 100, 10)
        consumer.close()


def steps_until_stuck(producer: TensorProducer) -> int:
    """Take steps until three of them had no batch; give how many batches there were."""
    places = [(step, producer.index) for step in itertools.islice(producer, 3)]
    while len({*places[-3:]}) > 1:
        places.append((next(producer), producer.index))
    assert places[-1][0] is None
    return places[-1][1]


def test_without_consumers_the_loop_is_not_stuck_in_a_step() -> None:
    producer = TensorProducer(Told(100, 10))
    assert steps_until_stuck(producer) == 1
    producer.join()


def test_a_full_ring_holds_up_the_loop_but_no_step() -> None:
    producer = TensorProducer(Told(100, 10), **TIGHT)
    next(producer)
    consumer = TensorConsumer(batch_size=10)
    # One batch at the consumer, two in the ring, one that waits for space there, one behind it.
    assert steps_until_stuck(producer) == 5
    consumer.close()
    producer.join()


def test_those_that_were_started_together_begin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "_GATHER_SECS", 3600.0)
    with producing(Told(100, 10)) as producer:
        first = TensorConsumer(batch_size=10)
        second = TensorConsumer(batch_size=10)
        assert producer.index == 1
        monkeypatch.setattr(producer_module, "_GATHER_SECS", 0.0)
        assert read(first) == expected(0, 100, 10)
        assert read(second) == expected(0, 100, 10)
        first.close()
        second.close()


def test_the_loader_runs_in_the_thread_of_the_loop() -> None:
    class Noting(Told):
        thread = 0

        def _epoch(self, epoch: int) -> Iterator[Any]:
            self.thread = threading.get_ident()
            return super()._epoch(epoch)

    loader = Noting(100, 10)
    producer = TensorProducer(loader)
    next(producer)
    assert loader.thread == threading.get_ident()
    producer.join()


def test_whoever_asks_where_the_loader_hangs_is_shown_the_loop() -> None:
    before = set(threading.enumerate())
    producer = TensorProducer(Told(100, 10))
    next(producer)
    threads = set(threading.enumerate()) - before
    (thread,) = (thread for thread in threads if thread.name.startswith("feedline-"))
    eventually(lambda: thread.ident in _stack.driven_by)
    assert "test_whoever_asks_where" in _stack.stack_of(thread.ident or 0, True)
    producer.join()
    assert thread.ident not in _stack.driven_by


def test_a_consumer_goes_on_where_its_loop_was_left() -> None:
    with producing(Told(100, 10), epochs=2):
        consumer = TensorConsumer(batch_size=10)
        places = []
        for _ in consumer:
            places.append((consumer.epoch, consumer.batch_count, consumer.batch_max))
            if len(places) == 3:
                break
        assert places == [(0, 1, 0), (0, 2, 1), (0, 3, 2)]
        assert read(consumer) == expected(0, 100, 10, start=30)
        assert (consumer.epoch, consumer.batch_count, consumer.batch_max) == (1, 0, -1)
        assert read(consumer) == expected(1, 100, 10)
        consumer.close()


def test_a_loop_that_counts_for_itself_gets_the_next_epoch_next() -> None:
    with producing(Told(100, 10), epochs=3):
        consumer = TensorConsumer(batch_size=30)
        for epoch in range(3):
            counted = itertools.islice(consumer, len(consumer))
            assert read(counted) == expected(epoch, 100, 30)
        with pytest.raises(feedline.FeedEndedError):
            read(consumer)
        assert consumer.epoch == 3
        consumer.close()


def test_a_first_batch_taken_by_hand_belongs_to_its_epoch() -> None:
    with producing(Told(20, 20), epochs=2):
        consumer = TensorConsumer(batch_size=20)
        for epoch in range(2):
            first = next(consumer)
            assert read(itertools.chain([first], consumer)) == expected(epoch, 20, 20)
        consumer.close()


def test_the_last_batch_can_be_left_out() -> None:
    with producing(Told(100, 10)):
        consumer = TensorConsumer(batch_size=30, drop_last=True)
        assert len(consumer) == 3
        assert read(consumer) == expected(0, 100, 30, drop_last=True)
        consumer.close()


def test_a_length_that_is_not_known_is_guessed_from_the_first_batch() -> None:
    class Short(Counter):
        """Has a smaller last batch, of which its length says nothing."""

        def __next__(self) -> Any:
            batch = super().__next__()
            return [part[:5] for part in batch] if self.next_key == 100 else batch

    with producing(Short(10, 10), epochs=1):
        consumer = TensorConsumer(batch_size=5)
        assert len(consumer) == 20
        assert len(list(consumer)) == 19
        assert len(consumer) == 19
        consumer.close()


def test_what_came_before_an_early_end_arrives_first() -> None:
    producer = TensorProducer(Told(100, 10))
    next(producer)
    consumer = TensorConsumer(batch_size=10)
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(producer.join)
        eventually(lambda: producer._server.stats()["state"] == "failed")
        assert read(consumer, limit=1) == expected(0, 10, 10)
        with pytest.raises(feedline.LoaderError, match="after 1 of 10 batches"):
            next(consumer)
        joined.result()
    consumer.close()


def test_an_empty_epoch_is_passed_over() -> None:
    class Second(Told):
        def samples_in(self, epoch: int) -> int:
            return 0 if epoch == 0 else 100

        def __len__(self) -> int:
            return 10

    with producing(Second(100, 10), epochs=2):
        consumer = TensorConsumer(batch_size=10)
        assert read(consumer) == expected(1, 100, 10)
        assert consumer.epoch == 1
        consumer.close()


@pytest.mark.parametrize(
    ("pack_fn", "unpack_fn"),
    [
        (pack, unpack),
        (pack, lambda data: tuple(payload.tensor for payload in data)),
        (lambda data: pack(data), unpack),
        (lambda data: data, lambda data: data),
        (
            lambda data: {"x": TensorPayload(data[0]), "y": data[1]},
            lambda data: (data["x"].tensor, data["y"]),
        ),
    ],
)
def test_what_pack_makes_unpack_gets(pack_fn: Any, unpack_fn: Any) -> None:
    with producing(pairs(), pack_fn=pack_fn):
        consumer = TensorConsumer(unpack_fn=unpack_fn, batch_size=25)
        for number, (twice, numbers) in enumerate(consumer):
            assert torch.equal(numbers, torch.arange(number * 25, number * 25 + 25))
            assert torch.equal(twice, numbers * 2.0)
        assert consumer.epoch == 1
        consumer.close()


def test_a_consumer_of_feedlines_own_can_read_along() -> None:
    with producing(pairs()):
        with feedline.attach("tensorsocket-5555", batch_size=50) as feed:
            (first, second) = [numbers for _, numbers in feed]
        assert torch.equal(torch.cat([first, second]), torch.arange(100))


def test_dicts_and_single_tensors_arrive_as_they_are() -> None:
    for batch in ({"x": np.arange(10)}, np.arange(10)):
        with producing([batch] * 3):
            consumer = TensorConsumer(batch_size=15)
            (first, second) = list(consumer)
            assert type(first) is type(batch)
            assert len(second["x"] if isinstance(second, dict) else second) == 15
            consumer.close()


def test_tensors_are_moved_wrapped_or_not() -> None:
    moved = place((torch.ones(2), TensorPayload(torch.ones(3)), "word"), "meta")
    assert [moved[0].device.type, moved[1].tensor.device.type, moved[2]] == ["meta", "meta", "word"]


def test_a_schema_that_changes_is_raised_in_the_loop_and_in_consumers() -> None:
    producer = TensorProducer([np.zeros((4, 2)), np.zeros((4, 3))] * 9)
    next(producer)
    consumer = TensorConsumer(batch_size=4)
    with pytest.raises(feedline.SchemaError):
        for _ in producer:
            pass
    with pytest.raises(feedline.FeedlineError, match="has ended"):
        next(producer)
    next(consumer)
    with pytest.raises(feedline.SchemaError):
        next(consumer)
    consumer.close()
    producer.join()
    assert feedline.feeds() == []


def test_a_producer_that_was_joined_says_so() -> None:
    producer = TensorProducer(Told(100, 10))
    producer.join()
    producer.join()
    with pytest.raises(feedline.FeedlineError, match="was joined"):
        next(producer)
    assert feedline.feeds() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"port": "five"}, "port='five' is not a port"),
        ({"port": 70_000}, "port=70000"),
        ({"port": True}, "port=True"),
        ({"rubber_band_pct": "much"}, "rubber_band_pct='much'"),
        ({"rubber_band_pct": float("nan")}, "rubber_band_pct=nan"),
        ({"consumer_max_buffer_size": 0}, "consumer_max_buffer_size=0"),
        ({"producer_batch_size": 1.5}, "producer_batch_size=1.5"),
        ({"pack_fn": None}, "pack_fn=None can't be called"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(feedline.FeedValueError) as caught:
        TensorProducer([np.arange(3)], **arguments)
    assert words in str(caught.value)
    assert "\n  " in str(caught.value)


def test_a_consumers_bad_arguments_are_named() -> None:
    for arguments in ({"port": None}, {"unpack_fn": 3}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            TensorConsumer(**arguments)
    with pytest.raises(TypeError, match="not iterable"):
        TensorProducer(42)
