"""Producers and consumers as TensorSocket's users write them, in processes of their own."""

from __future__ import annotations

import signal

import pytest

import feedline
from conftest import Start
from support.processes import Child, Report
from support.reading import expected
from support.tensorsocket_roles import TIGHT, consume, die_after, produce

pytestmark = pytest.mark.timeout(120, method="thread")


def finished(consumer: Child, epochs: range, batch_size: int, *, samples: int = 650) -> None:
    """Each of these epochs arrived whole, exactly, in order."""
    for number, epoch in enumerate(epochs):
        report = consumer.expect("epoch")
        want = expected(epoch, samples, batch_size)
        assert report["epoch"] == number + 1
        assert (report["sizes"], report["keys"], report["exact"]) == (want.sizes, want.keys, True)
    assert consumer.expect("done")["len"] == -(-samples // batch_size)


def of(producer: Child, event: str) -> Report:
    """Wait for an event of the loop, whatever it says of steps without a batch."""
    while (report := producer.report())["event"] == "stuck":
        pass
    assert report["event"] == event, report
    return report


def begin_with(producer: Child, consumers: int) -> None:
    """Let a producer that gathers begin, once these have joined."""
    producer.expect("ready")
    while len(producer.expect("stuck")["cursors"]) < consumers:
        pass
    producer.tell("go")


def went_through(producer: Child, *, epochs: int = 3) -> None:
    for epoch in range(epochs):
        assert of(producer, "epoch")["epoch"] == epoch + 1
    of(producer, "joined")


def ended(producer: Child, *, epochs: int = 3) -> None:
    """Its loop ran through these epochs, and it ended by itself."""
    producer.expect("ready")
    went_through(producer, epochs=epochs)
    assert producer.exit_code() == 0


def test_every_consumer_gets_every_epoch_whole_at_its_own_batch_size(start: Start) -> None:
    producer = start(produce, gather=True, **TIGHT)
    sizes = (16, 48, 7, 650)
    consumers = [start(consume, batch_size=size) for size in sizes]
    begin_with(producer, len(sizes))
    for consumer, size in zip(consumers, sizes, strict=True):
        assert consumer.expect("attached")["len"] == -(-650 // size)
        finished(consumer, range(3), size)
    went_through(producer)


def test_sixty_four_is_the_batch_size_if_nothing_is_said(start: Start) -> None:
    consumer = start(consume)
    producer = start(produce)
    assert consumer.expect("attached")["len"] == 11
    finished(consumer, range(3), 64)
    ended(producer)


def test_ports_are_names(start: Start) -> None:
    for samples, ports in ((100, (5556, "5556")), (200, ("5557", 5557))):
        producer = start(produce, args=(samples, 10), port=ports[0])
        consumer = start(consume, port=ports[1], batch_size=9)
        consumer.expect("attached")
        finished(consumer, range(3), 9, samples=samples)
        ended(producer)


def test_a_consumer_that_leaves_after_its_epoch_holds_up_nobody(start: Start) -> None:
    producer = start(produce, gather=True, **TIGHT)
    consumers = [start(consume, batch_size=10, epochs=count) for count in (1, 3)]
    begin_with(producer, 2)
    for consumer, count in zip(consumers, (1, 3), strict=True):
        consumer.expect("attached")
        finished(consumer, range(count), 10)
    went_through(producer)


def test_a_killed_consumer_holds_up_nobody(start: Start) -> None:
    producer = start(produce, gather=True, **TIGHT)
    victim = start(die_after, batches=2, batch_size=10)
    consumer = start(consume, batch_size=10)
    begin_with(producer, 2)
    victim.expect("holding")
    victim.tell("die")
    consumer.expect("attached")
    finished(consumer, range(3), 10)
    went_through(producer)


def test_a_consumer_counts_from_when_it_was_made(start: Start) -> None:
    producer = start(produce, gather=True, **TIGHT)
    slow = start(consume, linger=True, batch_size=10)
    slow.expect("attached")
    fast = start(consume, batch_size=10)
    fast.expect("attached")
    begin_with(producer, 2)
    # The fast one has read all that there is, and waits.
    while len(cursors := producer.expect("stuck")["cursors"]) < 2 or cursors[0] == cursors[1]:
        pass
    slow.tell("go")
    finished(slow, range(3), 10)
    finished(fast, range(3), 10)
    went_through(producer)


def test_one_that_was_made_and_forgotten_gets_a_later_epoch_whole(start: Start) -> None:
    producer = start(produce, epochs=2, stall_secs=0.5, gather=True, **TIGHT)
    forgotten = start(consume, epochs=1, linger=True, batch_size=10)
    consumer = start(consume, epochs=1, batch_size=10)
    begin_with(producer, 2)
    forgotten.expect("attached")
    consumer.expect("attached")
    finished(consumer, range(1), 10)
    assert consumer.exit_code() == 0
    forgotten.tell("go")
    finished(forgotten, range(1, 2), 10)
    went_through(producer, epochs=2)


def test_within_the_rubber_band_a_latecomer_gets_the_running_epoch(start: Start) -> None:
    producer = start(produce, epochs=2, rubber_band_pct=1.0, **TIGHT)
    first = start(die_after, batches=40, batch_size=10)
    first.expect("holding")
    late = start(consume, epochs=2, batch_size=10)
    late.expect("attached")
    first.tell("die")
    finished(late, range(2), 10)
    ended(producer, epochs=2)


def test_beyond_the_rubber_band_a_latecomer_gets_the_next_epoch(start: Start) -> None:
    """And if nobody else is left in the running one, the producer's loop goes on to the next."""
    producer = start(produce, epochs=2, rubber_band_pct=0.0, **TIGHT)
    first = start(die_after, batches=40, batch_size=10)
    first.expect("holding")
    first.tell("die")
    assert first.exit_code() == -signal.SIGKILL
    late = start(consume, epochs=1, batch_size=10)
    late.expect("attached")
    finished(late, range(1, 2), 10)
    ended(producer, epochs=2)


def test_a_producer_that_ends_without_join_loses_nothing(start: Start) -> None:
    producer = start(produce, epochs=1, join=False)
    consumer = start(consume, epochs=2, hold=True, batch_size=48)
    consumer.expect("attached")
    consumer.expect("holding")
    producer.expect("ready")
    of(producer, "epoch")
    producer.expect("exiting")
    # It waits for us, so nobody new can have its port; without that the name would be free by now.
    start(produce).expect_error(feedline.FeedlineError, str(producer.pid))
    consumer.tell("go")
    assert consumer.expect("epoch")["keys"] == expected(0, 650, 48).keys
    consumer.expect_error(feedline.FeedEndedError, "port 5555", "its last epoch")
    assert producer.exit_code() == 0


def test_a_killed_producer_is_an_error_and_its_port_is_free(start: Start) -> None:
    producer = start(produce, **TIGHT)
    consumer = start(consume, hold=True, batch_size=10)
    consumer.expect("attached")
    consumer.expect("holding")
    producer.kill()
    consumer.tell("go")
    consumer.expect_error(feedline.ServerLostError, "tensorsocket-5555")
    again = start(produce)
    finished_by = start(consume, batch_size=10)
    finished_by.expect("attached")
    finished(finished_by, range(3), 10)
    ended(again)


def test_what_the_loader_raises_is_raised_in_the_loop_and_in_consumers(start: Start) -> None:
    producer = start(produce, loader="raises", **TIGHT)
    consumer = start(consume, batch_size=7)
    consumer.expect("attached")
    consumer.expect_error(feedline.LoaderError, "sample 401 is broken", "in _epoch")
    producer.expect("ready")
    error = of(producer, "error")
    assert error["type"] == "RuntimeError"
    assert error["message"] == "sample 401 is broken"
    assert "in _epoch" in error["traceback"]
    assert "_handoff.py" not in error["traceback"]


def test_a_loop_that_is_left_in_the_middle_of_an_epoch_is_an_error_after_what_was_sent(
    start: Start,
) -> None:
    producer = start(produce, epochs=1, leave_after=30, **TIGHT)
    consumer = start(die_after, batches=31, batch_size=10)
    consumer.expect_error(feedline.LoaderError, "after 30 of 65 batches")
    producer.expect("ready")
    assert of(producer, "epoch")["index"] == 30
    of(producer, "joined")
    assert producer.exit_code() == 0


def test_a_loop_that_is_left_and_taken_up_again_goes_on(start: Start) -> None:
    producer = start(produce, epochs=4, leave_after=30)
    consumer = start(consume, epochs=2, batch_size=10)
    consumer.expect("attached")
    finished(consumer, range(2), 10)
    producer.expect("ready")
    reports = [of(producer, "epoch") for _ in range(4)]
    places = [(report["epoch"], report["index"]) for report in reports]
    assert places == [(0, 30), (1, 0), (1, 30), (2, 0)]


def test_an_endless_loader_with_a_length_has_epochs_of_that_length(start: Start) -> None:
    producer = start(produce, loader="counter", args=(20, 10), epochs=2)
    consumer = start(consume, epochs=2, batch_size=64)
    # 200 samples, by the first batch and the loader's length: it can't tell exactly yet.
    assert consumer.expect("attached")["len"] == 4
    for epoch in range(2):
        report = consumer.expect("epoch")
        assert report["keys"] == list(range(epoch * 200, epoch * 200 + 200))
        assert report["sizes"] == [64, 64, 64, 8]
    consumer.expect("done")
    ended(producer, epochs=2)


def test_a_second_producer_of_a_port_learns_of_the_first(start: Start) -> None:
    producer = start(produce)
    producer.expect("ready")
    start(produce).expect_error(feedline.FeedlineError, "tensorsocket-5555", str(producer.pid))
    consumer = start(consume, batch_size=10)
    consumer.expect("attached")
    finished(consumer, range(3), 10)


def test_without_a_producer_a_consumer_says_what_it_waited_for(start: Start) -> None:
    consumer = start(consume, port=4711, timeout_secs=0.2)
    consumer.expect_error(feedline.FeedNotFoundError, "port 4711", "tensorsocket-4711", "nothing")
