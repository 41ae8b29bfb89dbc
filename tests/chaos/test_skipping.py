"""One that is overtaken while it waits, under `lag="skip"`: what it lost is counted once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import feedline
from chaos.scenario import await_stop
from conftest import Start
from support.child import say
from support.loaders import Numbered
from support.reading import read

SAMPLES, GATE = 600, 200


class Gated(Numbered):
    """The first epoch rests in the middle."""

    def __init__(self) -> None:
        super().__init__(SAMPLES, 10)
        self.gate = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(super().__iter__()):
            if number == GATE // 10:
                self.gate.wait()
            yield batch


def follow() -> None:
    with feedline.attach("train", batch_size=1) as feed:
        got = read(feed)
        say("read", keys=got.keys, exact=got.exact, skipped=feed.stats()["skipped"])


def test_overtaken_while_it_waits(start: Start) -> None:
    loader = Gated()
    with (
        feedline.Server(loader, "train", ring=60, history=0, lag="skip", wait_for=2),
        feedline.attach("train", batch_size=10) as fast,
        ThreadPoolExecutor() as pool,
    ):
        # It looks ten times a second while the loader rests.
        slow = start(follow, fault="consumer:about_to_sleep:20:stop")
        reading = pool.submit(read, fast)
        await_stop(slow)
        loader.gate.set()
        assert reading.result().exact
        read(iter(fast), limit=30)
        slow.resume()
        report = slow.expect("read")
        assert report["exact"]
        assert report["keys"] == sorted(set(report["keys"]))
        assert len(report["keys"]) + report["skipped"] == SAMPLES
