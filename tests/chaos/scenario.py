"""A feed with survivors: a server and consumers that must not notice what happens to another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feedline
from chaos import consumer_process
from chaos.judge import Policy
from chaos.points import RING, SAMPLES
from conftest import Start
from support import roles
from support.loaders import Numbered
from support.processes import Child, Report
from support.reading import expected, read
from support.stopping import is_stopped
from support.waiting import TIMEOUT_SECS, eventually

LONGEST_STALL_SECS = 60.0
BEATS = ("reading", "beat", "behaviour")


class Scenario:
    """A server and two consumers, all of them processes."""

    def __init__(
        self,
        start: Start,
        *,
        policy: Policy = "block",
        stall_secs: float = LONGEST_STALL_SECS,
        survivors: int = 2,
        **options: Any,
    ) -> None:
        self.start = start
        self.policy = policy
        self.stall_secs = stall_secs
        options = {"ring": RING, "wait_for": survivors, **options}
        self.server = start(
            roles.serve, loader_args=[SAMPLES, 10], stall_timeout_secs=stall_secs, **options
        )
        self.server.expect("ready")
        sizes = [7, 16, 10, 33][:survivors]
        self.survivors = [self.consumer(batch_size=size) for size in sizes]
        for survivor in self.survivors:
            survivor.expect("reading")

    def consumer(self, *, fault: str | None = None, **behaviour: Any) -> Child:
        """Start one more consumer."""
        return self.start(
            consumer_process.follow,
            fault=fault,
            samples=SAMPLES,
            policy=self.policy,
            stall_secs=self.stall_secs,
            **behaviour,
        )

    def go_on(self, consumers: list[Child] | None = None, *, epochs: int = 2) -> None:
        """Wait until the survivors have read so many more epochs."""
        for survivor in consumers or self.survivors:
            read_on(survivor, epochs)

    def end(self, *others: Child) -> list[Report]:
        """End everything; what the consumers say last."""
        consumers = [*self.survivors, *others]
        for consumer in consumers:
            consumer.tell("end")
        reports = [await_report(consumer, "done") for consumer in consumers]
        self.server.tell("stop")
        self.server.expect("done")
        assert self.server.exit_code() == 0, self.server.stderr
        assert "panicked" not in self.server.stderr, self.server.stderr
        return reports


def await_report(consumer: Child, event: str) -> Report:
    """Wait for a report among the beats."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while (report := consumer.report())["event"] != event:
        assert report["event"] in BEATS, report.get("traceback", report)
        assert time.monotonic() < deadline, f"{consumer.role} never said {event}: {report}"
    return report


def read_on(consumer: Child, epochs: int) -> Report:
    """Wait until a consumer has read so many more epochs."""
    for report in consumer.said():
        assert report["event"] in BEATS, report.get("traceback", report)
    first = await_report(consumer, "beat")
    while (beat := await_report(consumer, "beat"))["epochs"] < first["epochs"] + epochs:
        pass
    return beat


def all_read_on(consumers: list[Child], epochs: int) -> None:
    """Wait until all have read so many more epochs; one that fails may be why another waits."""
    for consumer in consumers:
        try:
            read_on(consumer, epochs)
        except AssertionError as error:
            others = [other.said()[-1:] for other in consumers if other is not consumer]
            raise AssertionError(f"{error}\nthe others said last: {others}") from error


def longest_pause(report: Report, since: float) -> float:
    """Give the longest wait for a batch that was not over before `since`."""
    return max((secs for secs, at in report["pauses"] if at + secs > since), default=0.0)


def await_death(child: Child) -> float:
    """Wait until a child has killed itself; when it was gone."""
    # Popen.wait polls only now and then.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    at = time.monotonic()
    assert child.exit_code() == -signal.SIGKILL, child.stderr
    return at


def await_stop(child: Child) -> float:
    """Wait until a child has stopped itself; when it was seen to."""
    eventually(lambda: is_stopped(child.pid))
    return time.monotonic()


def serve_again(folder: Path, *, also: Callable[[], None] | None = None) -> float:
    """Serve under the same name: it is free at once, and afterwards the folder is empty."""
    began = time.monotonic()
    with (
        feedline.Server(Numbered(50, 10), "train", epochs=1),
        feedline.attach("train", batch_size=10) as feed,
    ):
        if also is not None:
            also()
        assert read(feed) == expected(0, 50, 10)
        took = time.monotonic() - began
    assert not list(folder.iterdir())
    return took
