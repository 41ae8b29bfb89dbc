"""Control clients: the numbers that a server gives them, and which users may end a feed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from feedline._core import cli
from support import roles
from support.child import hear, say
from support.loaders import Numbered
from support.processes import Child
from support.users import become, needs_root, open_up
from support.waiting import eventually

Report = dict[str, Any]
GUEST = 54_325


class Slow(Numbered):
    """A loader that takes a while for each batch."""

    def __init__(self, samples: int, batch_size: int, secs: float) -> None:
        super().__init__(samples, batch_size)
        self.secs = secs

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            time.sleep(self.secs)  # pause: slow on purpose
            yield batch


def hold(how: str) -> None:
    """Take one batch, and go as told."""
    feed = feedline.attach("train", batch_size=10)
    batches = iter(feed)
    next(batches)
    say("taken")
    if hear() == "finish":
        list(batches)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise ValueError("on purpose")


def events(server: feedline.Server) -> list[tuple[str, int | None]]:
    return [(event["kind"], event["pid"]) for event in server.stats()["events"]]


def test_the_time_of_the_source_is_accounted_for() -> None:
    with feedline.Server(Slow(100, 10, 0.02), "train", samples=100, ring=40) as server:
        feed = feedline.attach("train", batch_size=10)
        for _ in feed:
            pass
        stats = server.stats()
        # The last tick of the kernel's clock is still to come.
        assert stats["loading_secs"] >= 10 * 0.02 - 0.01
        parts = stats["loading_secs"] + stats["copying_secs"] + stats["wait_secs"]
        # To a rounding of the sum.
        assert 0.9 * stats["uptime_secs"] - 0.2 <= parts <= stats["uptime_secs"] + 1e-9
        (consumer,) = stats["consumers"]
        assert consumer["waited_secs"] >= 5 * 0.02
        assert consumer["uid"] == os.getuid()
        # With nobody who asks for more, the ring fills, and then the source waits.
        eventually(lambda: server.stats()["ring_fill"] >= 0.7)
        waited = server.stats()["wait_secs"]
        eventually(lambda: server.stats()["wait_secs"] > waited + 0.05)


def test_a_loader_that_is_at_it_for_long_shows() -> None:
    with feedline.Server(Slow(100, 10, 60), "train", samples=100) as server:
        eventually(lambda: server.stats()["loader_call_secs"] > 0.1)
        stats = server.stats()
        assert stats["loading_secs"] >= stats["loader_call_secs"]
        assert stats["state"] == "starting"


def test_lag_has_an_age(start: Start) -> None:
    with feedline.Server(Numbered(1000, 10), "train", samples=1000, ring=100) as server:
        holder = start(hold, how="end")
        holder.expect("taken")

        def consumer() -> Report:
            (one,) = server.stats()["consumers"]
            return dict(one)

        eventually(lambda: consumer()["lag_samples"] >= 60)
        first = consumer()["lag_secs"]
        eventually(lambda: consumer()["lag_secs"] > first + 0.2)
        assert consumer()["lag_secs"] <= server.stats()["uptime_secs"]


@pytest.mark.parametrize(
    ("how", "word", "kind"),
    [
        ("kill", "go", "died"),
        ("raise", "go", "left"),
        ("end", "go", "left"),
        ("end", "finish", "left"),
    ],
)
def test_who_came_and_how_it_went(start: Start, how: str, word: str, kind: str) -> None:
    with feedline.Server(Numbered(100, 10), "train", samples=100) as server:
        child = start(hold, how=how)
        child.expect("taken")
        assert ("joined", child.pid) in events(server)
        child.tell(word)
        child.exit_code()
        eventually(lambda: not server.stats()["consumers"])
        gone = [kind for kind, pid in events(server) if pid == child.pid and kind != "joined"]
        assert gone == [kind]
        assert [event["number"] for event in server.stats()["events"]] == sorted(
            event["number"] for event in server.stats()["events"]
        )


def read_on(feed: feedline.Feed, batches: Any) -> None:
    while True:
        list(batches)
        batches = iter(feed)


def serving(start: Start, **options: Any) -> Child:
    child = start(roles.serve, loader_args=[100, 10], **options)
    child.expect("ready")
    return child


def test_stop_ends_a_feed_and_names_who_did(start: Start) -> None:
    server = serving(start)
    feed = feedline.attach("train", batch_size=10)
    batches = iter(feed)
    next(batches)
    command = [sys.executable, "-m", "feedline", "stop", "train"]
    stop = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    _, talk = stop.communicate()
    assert (stop.returncode, talk) == (0, f"stopped train (pid {server.pid})\n")
    assert all(one.name != "train" for one in feedline.feeds())
    with pytest.raises(feedline.ServerLostError, match=f"pid {stop.pid} told its server to stop"):
        read_on(feed, batches)
    assert server.expect("done")["stats"]["state"] == "stopped"


def test_a_stopped_server_with_a_full_queue_is_there(start: Start, folder: Path) -> None:
    server = serving(start)
    server.stop()
    waiting: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect(str(folder / "train.sock"))
    command = [sys.executable, "-m", "feedline", "stop", "train"]
    stop = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    server.resume()
    for one in waiting:
        one.close()
    assert stop.returncode == 1
    assert f'feed "train" (pid {server.pid}) does not answer' in stop.stderr
    assert f"kill -9 {server.pid}" in stop.stderr


def serve_with_few_descriptors(limit: int) -> None:
    with feedline.Server(Numbered(100, 10), "train") as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        say("ready")
        server.wait()
    say("done")


def test_the_owner_gets_in_where_consumers_do_not(start: Start, folder: Path) -> None:
    """One consumer for every eight descriptors; the owner's control clients need none."""
    server = start(serve_with_few_descriptors, limit=96)
    server.expect("ready")
    attached = [feedline.attach("train", batch_size=10) for _ in range(96 // 8)]
    for feed in attached:
        next(iter(feed))
    with pytest.raises(feedline.StalledError, match="as many consumers as it can"):
        next(iter(feedline.attach("train", batch_size=10, timeout_secs=3)))
    command = [sys.executable, "-m", "feedline", "stop", "train"]
    stop = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert stop.stderr == f"stopped train (pid {server.pid})\n"
    server.expect("done")
    for feed in attached:
        feed.close()


@pytest.mark.parametrize("command", ["ls", "top", "stop", "metrics"])
def test_a_folder_that_is_none_is_not_empty(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("FEEDLINE_DIR", str(file))
    assert cli([command], [])[0] == 1
    assert f"cannot use {file} for sockets: Not a directory" in capfd.readouterr().err


@needs_root
def test_another_user_may_look_and_not_stop(start: Start, folder: Path) -> None:
    server = serving(start, allow=[GUEST])
    open_up(folder)
    guest = start(list_and_stop, uid=GUEST)
    assert guest.expect("listed")["code"] == 0
    assert guest.expect("stopped")["code"] == 1
    assert server.ask("stats")["stats"]["state"] == "running"


def list_and_stop(uid: int) -> None:
    """As another user."""
    become(uid)
    say("listed", code=cli(["ls"], [])[0])
    say("stopped", code=cli(["stop", "train"], [])[0])
