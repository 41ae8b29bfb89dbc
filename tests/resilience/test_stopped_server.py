"""A server that is stopped, or in a debugger: a consumer gives up and says why, or goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import feedline
from conftest import Start
from support.hanging_loaders import (
    AT,
    BATCH,
    after_asking,
    await_hang,
    consume,
    expect,
    expect_stalled,
    expect_whole_epoch,
    hanging_server,
    logged,
    release,
    take_then_leave,
)
from support.processes import joined
from support.waiting import allow_to_go_wrong, eventually

__all__ = ["release"]

# Much longer than it takes to stop a server, or to have it go on.
LOADER_SECS = 5.0


def test_a_server_stopped_for_shorter_than_the_timeout(start: Start, release: Path) -> None:
    server = hanging_server(start, release)
    consumer = start(consume, timeout_secs=8)
    consumer.expect("attached")
    await_hang(release)
    server.stop()
    release.touch()
    logged(consumer, f"its server (pid {server.pid}) has not answered", "it is stopped (state T)")
    server.resume()
    expect_whole_epoch(consumer)
    expect(server, "done")


def test_a_server_stopped_for_longer_than_the_timeout(start: Start, release: Path) -> None:
    server = hanging_server(start, release, linger_secs=60)
    consumer = start(consume, timeout_secs=1.5)
    consumer.expect("attached")
    waiting = start(consume)
    waiting.expect("attached")
    await_hang(release)
    server.stop()
    expect_stalled(
        consumer,
        'feed "train"',
        f"its server (pid {server.pid}) has not answered",
        "it is stopped (state T)",
        f"kill -CONT {server.pid}",
    )
    with pytest.raises(
        feedline.StalledError, match=r"has not answered .*it is stopped \(state T\)"
    ):
        feedline.attach("train", batch_size=BATCH, timeout_secs=1)
    server.resume()
    # The consumer that gave up is gone for the server; the other one has missed nothing.
    eventually(lambda: joined(after_asking(server)) == 1)
    release.touch()
    expect_whole_epoch(waiting)


def test_a_stopped_server_does_not_hold_its_loader_to_account(start: Start, release: Path) -> None:
    # With so small a ring it hangs only when the consumer has read.
    server = hanging_server(start, release, loader_timeout_secs=LOADER_SECS, ring=2 * BATCH)
    consumer = start(consume)
    consumer.expect("attached")
    await_hang(release)
    server.stop()
    # By the clock the loader's time is over.
    allow_to_go_wrong(LOADER_SECS + 1)
    server.resume()
    # Two rounds of the control thread.
    allow_to_go_wrong(0.5)
    release.touch()
    expect_whole_epoch(consumer)
    expect(server, "done")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, None])
def test_one_leaves_while_the_server_is_stopped(
    start: Start, release: Path, ending: signal.Signals | None
) -> None:
    server = hanging_server(start, release, wait_for=2)
    staying = start(consume)
    leaving = start(consume) if ending else start(take_then_leave, batches=AT // BATCH)
    if ending:
        leaving.expect("attached")
    else:
        leaving.expect("took")
    await_hang(release)
    eventually(lambda: joined(after_asking(server)) == 2)
    server.stop()
    if ending:
        leaving.signal(ending)
        assert leaving.exit_code() != 0
    else:
        leaving.tell("leave")
        leaving.expect("left")
    server.resume()
    eventually(lambda: joined(after_asking(server)) == 1)
    release.touch()
    expect_whole_epoch(staying)
    expect(server, "done")
