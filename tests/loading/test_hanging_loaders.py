"""A loader that hangs: everyone learns where, and goes on waiting or gives up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import hanging_loaders
from support.hanging_loaders import (
    AT,
    BATCH,
    SAMPLES,
    Hanging,
    after_asking,
    await_hang,
    come_early,
    consume,
    expect,
    expect_stalled,
    expect_whole_epoch,
    hanging_server,
    logged,
    pause,
    release,
    release_the_gil,
    serve_in_this_thread,
)
from support.loaders import Numbered
from support.reading import expected, read
from support.waiting import allow_to_go_wrong, eventually

__all__ = ["release"]

WARN_SECS = 0.3


@pytest.mark.parametrize("how", ["wait_in_python", "wait_for_a_lock"])
def test_everyone_is_told_where_it_hangs_and_goes_on(start: Start, release: Path, how: str) -> None:
    # It ends only when it has been heard: a line is logged beside what goes on.
    last = release.with_name("last")
    options: dict[str, Any] = {"loader_warn_secs": WARN_SECS, "wait_for": 2, "last": str(last)}
    server = hanging_server(start, release, how=how, **options)
    consumers = [start(consume) for _ in range(2)]
    for child in (server, *consumers):
        text = logged(
            child,
            "has not yielded a batch",
            f"pid {server.pid}",
            how,
            "_epoch",
            hanging_loaders.__file__,
        )
        # The server's own frames tell nobody anything.
        assert "_server.py" not in text
    release.touch()
    logged(server, "goes on")
    last.touch()
    for consumer in consumers:
        expect_whole_epoch(consumer)
    expect(server, "done")


def test_it_is_said_again_each_time_that_the_time_has_doubled(start: Start, release: Path) -> None:
    hanging_server(start, release, loader_warn_secs=WARN_SECS)
    consumer = start(consume)
    consumer.expect("attached")
    said = [logged(consumer, "has not yielded a batch") for _ in range(3)]
    secs = [float(found[1]) for text in said if (found := re.search(r"for ([\d.]+) s", text))]
    assert secs[0] >= WARN_SECS
    # Rounded to a tenth.
    assert secs[1] >= 2 * secs[0] - 0.15
    assert secs[2] >= 2 * secs[1] - 0.15
    release.touch()
    expect_whole_epoch(consumer)


def test_nobody_is_warned_while_nobody_is_there_and_who_comes_is_told_at_once(
    start: Start, release: Path
) -> None:
    server = hanging_server(start, release, loader_warn_secs=WARN_SECS)
    await_hang(release)
    allow_to_go_wrong(4 * WARN_SECS)
    assert server.ask("stats")["stats"]["batches"] == AT // BATCH
    first = start(consume)
    text = logged(server, "has not yielded a batch")
    assert float(re.findall(r"for ([\d.]+) s", text)[0]) >= 2 * WARN_SECS
    logged(first, "wait_in_python")
    second = start(consume, timeout_secs=60)
    # Long before the server warns again.
    logged(second, "wait_in_python")
    release.touch()
    for consumer in (first, second):
        expect_whole_epoch(consumer)


def test_who_was_busy_meanwhile_hears_no_old_news(start: Start, release: Path) -> None:
    last = release.with_name("last")
    server = hanging_server(start, release, loader_warn_secs=4, last=str(last))
    consumer = start(pause, batches=AT // BATCH)
    consumer.expect("took")
    logged(server, "has not yielded a batch")
    release.touch()
    eventually(lambda: after_asking(server)["batches"] == SAMPLES // BATCH - 1)
    # It waits for the last batch now, which is merely slow.
    consumer.tell("go on")
    eventually(lambda: after_asking(server)["consumers"][0]["waiting"])
    last.touch()
    assert consumer.expect("rest")["keys"] == list(range(AT, SAMPLES))


def test_without_a_warning_time_nothing_is_said(start: Start, release: Path) -> None:
    server = hanging_server(start, release, loader_warn_secs=None)
    consumer = start(consume)
    consumer.expect("attached")
    await_hang(release)
    allow_to_go_wrong(3 * WARN_SECS)
    release.touch()
    consumer.expect("epoch")
    server.expect("done")


def test_native_code_that_holds_the_gil_hangs_nobody_else(start: Start, release: Path) -> None:
    # With so small a ring it hangs only when the consumer has read.
    server = hanging_server(
        start, release, how="wait_with_the_gil", loader_warn_secs=WARN_SECS, ring=2 * BATCH
    )
    consumer = start(consume)
    logged(consumer, "native code that holds the GIL", f"py-spy dump --native --pid {server.pid}")
    # The control thread answers those who come, without a thread for each question.
    feeds = [feedline.attach("train", batch_size=BATCH) for _ in range(3)]
    names = [
        (task / "comm").read_text().strip() for task in Path(f"/proc/{server.pid}/task").iterdir()
    ]
    assert names.count("feedline-ask") == 1
    release_the_gil(release)
    for feed in feeds:
        feed.close()
    expect_whole_epoch(consumer)
    # The line waited for the GIL.
    logged(server, "native code that holds the GIL")


def test_a_worker_process_that_hangs_is_named(start: Start, release: Path) -> None:
    pytest.importorskip("torch")
    server = hanging_server(start, release, how="worker", loader_warn_secs=1.0)
    consumer = start(consume)
    text = logged(consumer, "child processes", "_try_get_data")
    worker = release.with_name("worker").read_text()
    # It checks for the file now and then.
    assert re.search(rf"pid {worker}: .*, (sleeping|running).* s of CPU", text), text
    release.touch()
    expect_whole_epoch(consumer)
    expect(server, "done")


# --- giving up ------------------------------------------------------------------------------------


def test_giving_up_is_an_error_for_everyone_and_frees_the_name(start: Start, release: Path) -> None:
    # With so small a ring the loader hangs only when both have read.
    server = hanging_server(start, release, loader_timeout_secs=0.6, wait_for=2, ring=2 * BATCH)
    consumers = [start(consume) for _ in range(2)]
    for child in (server, *consumers):
        expect_stalled(
            child, "gave up on its loader", f"pid {server.pid}", "wait_in_python", "_epoch"
        )
    assert server.exit_code() == 1
    with (
        feedline.Server(Numbered(50, 10), "train", epochs=1),
        feedline.attach("train", batch_size=10) as feed,
    ):
        assert read(feed) == expected(0, 50, 10)


def test_the_name_is_free_while_the_loader_still_hangs(release: Path) -> None:
    server = feedline.Server(
        Hanging("wait_in_python", str(release), AT),
        "train",
        loader_timeout_secs=0.6,
        ring=2 * BATCH,
    )
    with server, feedline.attach("train", batch_size=BATCH) as feed:
        iterator = iter(feed)
        # All that came before it is handed out.
        assert read(iterator, limit=AT // BATCH).keys == list(range(AT))
        for _ in range(2):
            with pytest.raises(feedline.StalledError, match="gave up on its loader"):
                next(iterator)
            iterator = iter(feed)
        with pytest.raises(feedline.StalledError, match="wait_in_python"):
            server.wait()
        assert server.stats()["state"] == "failed"
        with (
            feedline.Server(Numbered(50, 10), "train", epochs=1),
            feedline.attach("train", batch_size=10) as other,
        ):
            assert read(other) == expected(0, 50, 10)
        release.touch()


def test_nobody_waits_so_the_end_of_the_block_says_it(release: Path) -> None:
    loader = Hanging("wait_in_python", str(release), 0)
    with (
        pytest.raises(feedline.StalledError, match="gave up on its loader"),
        feedline.Server(loader, "train", loader_timeout_secs=0.3) as server,
    ):
        eventually(lambda: server.stats()["state"] == "failed")
    release.touch()


def test_serve_gives_up_too(start: Start, release: Path) -> None:
    server = start(serve_in_this_thread, release=str(release), loader_timeout_secs=0.6)
    expect_stalled(server, "gave up on its loader", f"pid {server.pid}", "wait_in_python")
    assert server.exit_code() == 1


def test_giving_up_on_one_that_holds_the_gil(start: Start, release: Path) -> None:
    server = hanging_server(
        start, release, how="wait_with_the_gil", loader_timeout_secs=0.5, ring=2 * BATCH
    )
    consumer = start(consume)
    expect_stalled(consumer, "gave up on its loader", "native code that holds the GIL")
    # Its process can't run Python before that.
    release_the_gil(release)
    expect_stalled(server, "gave up on its loader")


def test_giving_up_on_a_worker_leaves_no_process(start: Start, release: Path) -> None:
    pytest.importorskip("torch")
    server = hanging_server(start, release, how="worker", loader_timeout_secs=1.5)
    message = expect_stalled(server, "gave up on its loader", "_try_get_data")
    assert f"pid {release.with_name('worker').read_text()}: " in message
    assert server.exit_code() == 1


# --- the first batch ------------------------------------------------------------------------------


def test_attach_gives_up_with_the_place_that_hangs(start: Start, release: Path) -> None:
    """Long before the server would have warned: it is asked."""
    server = hanging_server(start, release, at=0)
    with pytest.raises(feedline.StalledError, match="first batch in 2") as error:
        feedline.attach("train", batch_size=BATCH, timeout_secs=2)
    for part in (str(server.pid), "wait_in_python", "_epoch", "timeout_secs"):
        assert part in str(error.value)
    release.touch()
    with feedline.attach("train", batch_size=BATCH) as feed:
        assert read(feed) == expected(0, SAMPLES, BATCH)


def test_those_who_wait_for_the_first_batch_are_told(start: Start, release: Path) -> None:
    hanging_server(start, release, at=0, loader_warn_secs=WARN_SECS)
    consumer = start(consume)
    logged(consumer, "has not yielded a batch", "wait_in_python")
    release.touch()
    expect_whole_epoch(consumer)


def test_attach_learns_that_the_first_batch_is_given_up(start: Start, release: Path) -> None:
    consumer = start(come_early)
    consumer.expect("checking")
    server = hanging_server(start, release, at=0, loader_timeout_secs=3)
    for child in (consumer, server):
        expect_stalled(child, "gave up on its loader", "wait_in_python")


@pytest.mark.parametrize("what", ["loader_warn_secs", "loader_timeout_secs"])
@pytest.mark.parametrize(
    "value", [-1, 0, float("nan"), float("inf"), 1e300, "30", "soon", True, [1.0], 1j]
)
def test_bad_times_are_refused(what: str, value: object) -> None:
    options: dict[str, Any] = {what: value}
    with pytest.raises(feedline.FeedValueError, match=rf"{what}=.*\n  give a number of seconds"):
        feedline.Server(Numbered(10, 10), "train", **options)
