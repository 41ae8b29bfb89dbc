"""Child processes as TensorSocket's users write them: a producer with its loop, and consumers."""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import threading
from collections.abc import Iterable
from typing import Any

from feedline.tensorsocket import TensorConsumer, TensorProducer
from feedline.tensorsocket import producer as producer_module
from support import loaders
from support.child import hear, say
from support.reading import read

# Two batches of ten: nobody can run far ahead of a consumer that waits.
TIGHT: dict[str, Any] = {"consumer_max_buffer_size": 1, "producer_batch_size": 1}


class Told(loaders.Sized):
    """Tells its samples and its batch size, as a torch DataLoader does."""

    def __init__(self, samples: int, batch: int, *, width: int = 37) -> None:
        super().__init__(samples, batch, width=width)
        self.batch_size = batch
        self.sampler = range(samples)


class Raises(Told):
    """Raises in the middle."""

    def _epoch(self, epoch: int) -> Any:
        yield from itertools.islice(super()._epoch(epoch), 40)
        raise RuntimeError("sample 401 is broken")


class Counter:
    """Its own iterator, which never ends, with a length."""

    def __init__(self, batches: int, batch: int) -> None:
        self.batches, self.batch = batches, batch
        self.next_key = 0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> Any:
        start, self.next_key = self.next_key, self.next_key + self.batch
        return list(loaders.numbered_batch(0, start, self.next_key, 37))


LOADERS: dict[str, Any] = {"told": Told, "raises": Raises, "counter": Counter}


def produce(
    loader: str = "told",
    args: tuple[int, int] = (650, 10),
    epochs: int = 3,
    leave_after: int | None = None,
    join: bool = True,
    stall_secs: float = 60.0,
    gather: bool = False,
    **options: Any,
) -> None:
    """Run the loop of their README, or leave it, or end, in other ways.

    With `gather` it begins when told, not when the first consumer is there.
    """
    producer_module._STALL_SECS = stall_secs
    producer_module._GATHER_SECS = 0.0
    if gather:
        producer_module._GATHER_SECS = 3600.0
        threading.Thread(target=_begin_when_told, daemon=True).start()
    producer = TensorProducer(LOADERS[loader](*args), **options)
    say("ready", len=len(producer))
    for _ in range(epochs):
        before = None
        for _ in producer:
            if producer.index == leave_after:
                break
            if producer.index == before:
                cursors = [who["cursor"] for who in producer.consumers.values() if who["joined"]]
                say("stuck", cursors=sorted(cursors))
            before = producer.index
        say("epoch", epoch=producer.epoch, index=producer.index)
    atexit.register(say, "exiting")
    if join:
        producer.join()
        say("joined")


def _begin_when_told() -> None:
    hear()
    producer_module._GATHER_SECS = 0.0


def consume(epochs: int = 3, hold: bool = False, linger: bool = False, **options: Any) -> None:
    """Read whole epochs; wait to be told before, with `linger`, or after the first batch."""
    consumer = TensorConsumer(**options)
    say("attached", len=len(consumer))
    if linger:
        hear()
    for _ in range(epochs):
        batches: Iterable[Any] = consumer
        if hold:
            batches = itertools.chain([next(consumer)], consumer)
            say("holding")
            hold = hear() != "go"
        got = read(batches)
        say("epoch", epoch=consumer.epoch, **got.as_json())
    say("done", epoch=consumer.epoch, len=len(consumer))


def die_after(batches: int, **options: Any) -> None:
    """Take a few batches, report it, and exit without cleaning up when told."""
    consumer = TensorConsumer(**options)
    held = [next(consumer) for _ in range(batches)]
    say("holding", batches=len(held))
    hear()
    os.kill(os.getpid(), signal.SIGKILL)
