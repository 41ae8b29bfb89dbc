"""A consumer is overtaken while it waits, under `lag="skip"`: what it lost is counted once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import feedline
from chaos.scenario import await_stop
from conftest import Start
from support.child import say
from support.loaders import Gated
from support.reading import read

SAMPLES = 600


def follow() -> None:
    with feedline.attach("train", batch_size=1) as feed:
        got = read(feed)
        say("read", keys=got.keys, exact=got.exact, skipped=feed.stats()["skipped"])


def test_overtaken_while_it_waits(start: Start) -> None:
    loader = Gated(SAMPLES, 10, at=200)
    with (
        feedline.Server(loader, "train", ring=60, history=0, lag="skip", wait_for=2),
        feedline.attach("train", batch_size=10) as fast,
        ThreadPoolExecutor() as pool,
    ):
        # It wakes up ten times a second while the loader waits.
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
