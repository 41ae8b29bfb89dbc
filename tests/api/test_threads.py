"""A feed that several threads use: nobody waits for a lock with the GIL that its holder needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

import feedline
from conftest import Start
from support.child import say
from support.loaders import Numbered, Sized
from support.reading import read
from support.waiting import eventually


class AtRecord(logging.Handler):
    """Calls something when a record with these words is logged."""

    def __init__(self, words: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._words, self._act = words, act

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self._act()


def ask_while_an_epoch_is_ended(attribute: str) -> None:
    """While native code logs what was skipped, another thread reads the feed's properties."""
    logged, asked = threading.Event(), threading.Event()
    ends_the_epoch = threading.Event()
    words = "samples of the last epoch were skipped"

    def read_properties() -> None:
        logged.wait()
        asking: dict[str, Callable[[], object]] = {
            "epoch": lambda: feed.epoch,
            "closed": lambda: feed._attachment.core.closed,
            "position": feed.state_dict,
            "stats": feed.stats,
            "len": lambda: len(feed),
        }
        asking[attribute]()
        asked.set()

    def emit() -> None:
        if not logged.is_set():
            say("logged", ends_the_epoch=ends_the_epoch.is_set())
            logged.set()
            asked.wait()

    with (
        feedline.Server(
            Sized(100, 10), "train", samples=100, ring=40, history=0, lag="skip"
        ) as server,
        feedline.attach("train", batch_size=10) as fast,
        feedline.attach("train", batch_size=10) as slow,
    ):
        logger = logging.getLogger("feedline")
        logger.setLevel(logging.INFO)
        logger.addHandler(AtRecord(words, emit))
        threading.Thread(target=read_properties, daemon=True).start()
        feed = slow
        standing = iter(slow)
        next(standing)
        ahead = iter(fast)
        read(ahead, limit=8)
        # The server is bound by the fast one: some is overwritten, and the epoch has ended.
        eventually(lambda: server.stats()["epoch"] == 1)
        while slow.state_dict()["epoch"] == 0:
            next(standing)
        assert slow.stats()["skipped"] > 0
        # Everything was handed out, and nobody has asked for more: this ends that epoch.
        ends_the_epoch.set()
        reading = threading.Thread(target=lambda: read(ahead), daemon=True)
        reading.start()
        next(iter(slow))
        say("done", epoch=slow.epoch)


@pytest.mark.parametrize("attribute", ["epoch", "closed", "position", "stats", "len"])
def test_looking_at_a_feed_while_it_logs(start: Start, attribute: str) -> None:
    # In a process of its own: a thread that is stuck keeps the GIL for good.
    child = start(ask_while_an_epoch_is_ended, attribute=attribute)
    assert child.expect("logged")["ends_the_epoch"]
    assert child.expect("done")["epoch"] == 1


def test_close_ends_an_iteration_that_never_has_to_wait() -> None:
    """It is closed while it takes a batch, or between two: whichever it is, none follows."""
    samples = 20_000
    with feedline.Server(Numbered(samples, 1000), "train", replay=True) as server:
        for _ in range(20):
            feed = feedline.attach("train", batch_size=1, format="numpy")
            eventually(lambda: server.stats()["samples"] == samples)
            under_way, is_closed = threading.Event(), threading.Event()
            raised: list[BaseException] = []
            after: list[int] = []

            def iterate(
                feed: feedline.Feed = feed,
                under_way: threading.Event = under_way,
                is_closed: threading.Event = is_closed,
                raised: list[BaseException] = raised,
                after: list[int] = after,
            ) -> None:
                try:
                    for index, _ in enumerate(feed):
                        if is_closed.is_set():
                            after.append(index)
                        if index == 100:
                            under_way.set()
                        if index == samples - 100:
                            is_closed.wait()
                except feedline.FeedlineError as error:
                    raised.append(error)

            thread = threading.Thread(target=iterate)
            thread.start()
            under_way.wait()
            feed.close()
            is_closed.set()
            thread.join()
            assert "is closed" in str(raised[0])
            # The batch that it was taking.
            assert len(after) <= 1
            eventually(lambda: not server.stats()["consumers"])


def test_close_while_its_iterator_is_held() -> None:
    with (
        feedline.Server(Numbered(1000, 10), "train") as server,
        feedline.attach("train", batch_size=10) as feed,
    ):
        iterator = iter(feed)
        next(iterator)
        feed.close()
        for _ in range(2):
            with pytest.raises(feedline.FeedlineError, match="is closed"):
                next(iterator)
        eventually(lambda: not server.stats()["consumers"])


def test_an_iterator_that_is_through_stays_so_when_its_feed_is_closed() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train"),
        feedline.attach("train", batch_size=10) as feed,
    ):
        iterator = iter(feed)
        assert len(list(iterator)) == 10
        feed.close()
        assert list(iterator) == []
