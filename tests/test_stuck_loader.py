"""A loader or a server that hangs: everyone learns where, and goes on waiting or gives up."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import feedline
from child import hear, say
from conftest import Start
from loaders import Batch, Numbered, NumberedDataset
from processes import Child, Report, eventually, joined
from reading import expected, read

SAMPLES, BATCH, AT = 60, 10, 30
WARN_SECS = 0.3


# --- roles ----------------------------------------------------------------------------------------


def wait_in_python(release: Path) -> None:
    while not release.exists():
        time.sleep(0.02)


def wait_for_a_lock(release: Path) -> None:
    lock = threading.Lock()
    lock.acquire()
    while not release.exists():
        lock.acquire(timeout=0.02)


def wait_with_the_gil(release: Path) -> None:
    """In native code that has never heard of the GIL; it can't be released before its time."""
    ctypes.PyDLL(None).usleep(5_000_000)
    release.with_name("came_back").touch()


class Hanging(Numbered):
    """Hangs before sample `AT` of its first epoch, or before the first, until a file is there."""

    def __init__(self, how: str, release: str, at: int, pause_secs: float = 0.0) -> None:
        # Pages of samples, so that a small ring is small.
        super().__init__(SAMPLES, BATCH, width=4096)
        self.hang = globals()[how]
        self.release = Path(release)
        self.at = at
        self.pause_secs = pause_secs

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        for batch in super()._epoch(epoch):
            if batch[1][0] == self.at:
                self.release.with_name("hangs").touch()
                self.hang(self.release)
            if batch[1][-1] == SAMPLES - 1:
                time.sleep(self.pause_secs)
            yield batch


class HangingDataset(NumberedDataset):
    """The same in a worker process, which leaves its pid."""

    def __init__(self, release: str) -> None:
        super().__init__(SAMPLES)
        self.release = Path(release)

    def __getitem__(self, index: int) -> Any:
        if index == AT:
            self.release.with_name("worker").write_text(str(os.getpid()))
            wait_in_python(self.release)
        return super().__getitem__(index)


def hanging_workers(release: str) -> Any:
    from torch.utils.data import DataLoader

    dataset: Any = HangingDataset(release)
    return DataLoader(dataset, batch_size=BATCH, num_workers=1)


class Loud(logging.Handler):
    """Reports what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", level=record.levelname, text=record.getMessage())


def be_loud() -> None:
    logger = logging.getLogger("feedline")
    logger.addHandler(Loud())
    logger.setLevel(logging.INFO)


def serve(
    release: str,
    how: str = "wait_in_python",
    at: int = AT,
    pause_secs: float = 0.0,
    **options: Any,
) -> None:
    be_loud()
    loader = hanging_workers(release) if how == "worker" else Hanging(how, release, at, pause_secs)
    server = feedline.Server(loader, "train", epochs=1, **options)
    server.start()
    say("ready")

    def obey() -> None:
        while hear() == "stats":
            say("stats", stats=server.stats())
        server.stop()

    threading.Thread(target=obey, daemon=True).start()
    server.wait()
    say("done")


def serve_in_this_thread(release: str, **options: Any) -> None:
    feedline.serve(Hanging("wait_in_python", release, AT), "train", **options)


def consume(**options: Any) -> None:
    be_loud()
    feed = feedline.attach("train", batch_size=BATCH, **options)
    say("attached")
    say("epoch", **read(feed).as_json())


def take_then_leave(batches: int) -> None:
    """Leave by itself, in mid-epoch, when told."""
    feed = feedline.attach("train", batch_size=BATCH)
    iterator = iter(feed)
    say("took", **read(iterator, limit=batches).as_json())
    hear()
    feed.close()
    say("left")


def pause(batches: int) -> None:
    """Take some batches, do something else until told, and take the rest."""
    be_loud()
    feed = feedline.attach("train", batch_size=BATCH)
    iterator = iter(feed)
    say("took", **read(iterator, limit=batches).as_json())
    hear()
    say("rest", **read(iterator).as_json())


# --- hearing them ---------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Hands back the loader, once the file is there."""
    return tmp_path / "release"


def after_logs(child: Child) -> Report:
    while (report := child.report())["event"] in ("log", "attached"):
        pass
    return report


def expect(child: Child, event: str) -> Report:
    report = after_logs(child)
    assert report["event"] == event, report
    return report


def logged(child: Child, *parts: str) -> str:
    """Wait for a line in the log of a child that has all these parts."""
    while (report := child.report())["event"] in ("log", "attached"):
        if all(part in report.get("text", "") for part in parts):
            return str(report["text"])
    raise AssertionError(f"{parts} came not before {report}")


def expect_stalled(child: Child, *parts: str) -> str:
    report = expect(child, "error")
    assert report["type"] == "StalledError", report["traceback"]
    for part in parts:
        assert part in report["message"], report["message"]
    return str(report["message"])


def expect_whole_epoch(child: Child) -> None:
    report = expect(child, "epoch")
    assert {key: report[key] for key in ("sizes", "keys", "exact")} == expected(
        0, SAMPLES, BATCH
    ).as_json()


def hanging_server(start: Start, release: Path, **options: Any) -> Child:
    server = start(serve, release=str(release), **options)
    server.expect("ready")
    return server


def after_asking(server: Child) -> Report:
    server.tell("stats")
    return dict(expect(server, "stats")["stats"])


def stop(server: Child) -> None:
    server.signal(signal.SIGSTOP)
    eventually(lambda: Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2][1] == "T")


def await_hang(release: Path) -> None:
    eventually(release.with_name("hangs").exists)


# --- a loader that hangs --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["wait_in_python", "wait_for_a_lock"])
def test_everyone_is_told_where_it_hangs_and_goes_on(start: Start, release: Path, how: str) -> None:
    server = hanging_server(start, release, how=how, loader_warn_secs=WARN_SECS, wait_for=2)
    consumers = [start(consume) for _ in range(2)]
    for child in (server, *consumers):
        text = logged(
            child, "has not yielded a batch", f"pid {server.pid}", how, "_epoch", __file__
        )
        # The server's own frames tell nobody anything.
        assert "_server.py" not in text
    release.touch()
    logged(server, "goes on")
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
    time.sleep(4 * WARN_SECS)
    assert server.ask("stats")["stats"]["batches"] == AT // BATCH
    first = start(consume)
    text = logged(server, "has not yielded a batch")
    assert float(re.findall(r"for ([\d.]+) s", text)[0]) >= 2 * WARN_SECS
    logged(first, "wait_in_python")
    second = start(consume, timeout_secs=20)
    # Long before the server warns again.
    logged(second, "wait_in_python")
    release.touch()
    for consumer in (first, second):
        expect_whole_epoch(consumer)


def test_who_was_busy_meanwhile_hears_no_old_news(start: Start, release: Path) -> None:
    server = hanging_server(start, release, loader_warn_secs=1.5, pause_secs=0.5)
    consumer = start(pause, batches=AT // BATCH)
    consumer.expect("took")
    logged(server, "has not yielded a batch")
    release.touch()
    eventually(lambda: after_asking(server)["batches"] == SAMPLES // BATCH - 1)
    # It waits for the last batch now, which is merely slow.
    consumer.tell("go on")
    assert consumer.expect("rest")["keys"] == list(range(AT, SAMPLES))


def test_without_a_warning_time_nothing_is_said(start: Start, release: Path) -> None:
    server = hanging_server(start, release, loader_warn_secs=None)
    consumer = start(consume)
    consumer.expect("attached")
    await_hang(release)
    time.sleep(3 * WARN_SECS)
    release.touch()
    consumer.expect("epoch")
    server.expect("done")


def test_native_code_that_holds_the_gil_hangs_nobody_else(start: Start, release: Path) -> None:
    server = hanging_server(start, release, how="wait_with_the_gil", loader_warn_secs=WARN_SECS)
    consumer = start(consume)
    logged(consumer, "native code that holds the GIL", f"py-spy dump --native --pid {server.pid}")
    came_back = release.with_name("came_back")
    # The control thread answers those who come, without a thread for each question.
    feeds = [feedline.attach("train", batch_size=BATCH) for _ in range(3)]
    names = [
        (task / "comm").read_text().strip() for task in Path(f"/proc/{server.pid}/task").iterdir()
    ]
    assert names.count("feedline-ask") == 1
    assert not came_back.exists()
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
    assert re.search(rf"pid {worker}: .*, sleeping.* s of CPU", text), text
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
    assert not release.with_name("came_back").exists()
    # Its process can't run Python before that.
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
    server = hanging_server(start, release, at=0, loader_timeout_secs=1)
    consumer = start(consume)
    for child in (consumer, server):
        expect_stalled(child, "gave up on its loader", "wait_in_python")


# --- a server that is stopped ---------------------------------------------------------------------


def test_a_server_stopped_for_shorter_than_the_timeout(start: Start, release: Path) -> None:
    server = hanging_server(start, release)
    consumer = start(consume, timeout_secs=8)
    consumer.expect("attached")
    await_hang(release)
    stop(server)
    release.touch()
    logged(consumer, f"its server (pid {server.pid}) has not answered", "it is stopped (state T)")
    server.signal(signal.SIGCONT)
    expect_whole_epoch(consumer)
    expect(server, "done")


def test_a_server_stopped_for_longer_than_the_timeout(start: Start, release: Path) -> None:
    server = hanging_server(start, release, linger_secs=60)
    consumer = start(consume, timeout_secs=1.5)
    consumer.expect("attached")
    patient = start(consume)
    patient.expect("attached")
    await_hang(release)
    stop(server)
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
    server.signal(signal.SIGCONT)
    # Who gave up is gone for the server; who didn't has missed nothing.
    eventually(lambda: joined(after_asking(server)) == 1)
    release.touch()
    expect_whole_epoch(patient)


def test_a_stopped_server_does_not_hold_its_loader_to_account(start: Start, release: Path) -> None:
    server = hanging_server(start, release, loader_timeout_secs=3)
    consumer = start(consume)
    consumer.expect("attached")
    await_hang(release)
    stop(server)
    time.sleep(4)
    server.signal(signal.SIGCONT)
    # Two looks of the control thread: by the wall clock the time is long over.
    time.sleep(0.5)
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
    stop(server)
    if ending:
        leaving.signal(ending)
        assert leaving.exit_code() != 0
    else:
        leaving.tell("leave")
        leaving.expect("left")
    server.signal(signal.SIGCONT)
    eventually(lambda: joined(after_asking(server)) == 1)
    release.touch()
    expect_whole_epoch(staying)
    expect(server, "done")


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["loader_warn_secs", "loader_timeout_secs"])
@pytest.mark.parametrize(
    "value", [-1, 0, float("nan"), float("inf"), 1e300, "30", "soon", True, [1.0], 1j]
)
def test_bad_times_are_refused(what: str, value: object) -> None:
    options: dict[str, Any] = {what: value}
    with pytest.raises(feedline.FeedValueError, match=rf"{what}=.*\n  give a number of seconds"):
        feedline.Server(Numbered(10, 10), "train", **options)
