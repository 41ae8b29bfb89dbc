"""`feedline top`: what it shows, once and live, in a real terminal, and how it leaves that."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.feed_status import FEEDLINE, feedline_run, top
from support.loaders import Numbered
from support.processes import Child
from support.stopping import resume, stop
from support.waiting import TIMEOUT_SECS, eventually

LANGUAGE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])|(.)", re.DOTALL)
ALTERNATE, RESTORED = b"\x1b[?1049h", b"\x1b[?1049l"


class Screen:
    """`feedline top` in a terminal of its own."""

    def __init__(self, *args: str, columns: int = 120, rows: int = 40, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        # A session of its own has this terminal, and no other, for its signals.
        self.process = subprocess.Popen(
            [*FEEDLINE, "top", *args],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, secs: float = 0.05) -> None:
        while select.select([self.master], [], [], secs)[0]:
            self.output += os.read(self.master, 65536)

    def wait_for(self, text: str) -> None:
        """Read until this is on the screen."""
        deadline = time.monotonic() + TIMEOUT_SECS
        while text not in self.text():
            assert time.monotonic() < deadline, f"{text!r} is not in\n{self.text()}"
            self.read()

    def text(self) -> str:
        """What is on the screen: of a terminal's language, as much as is spoken here."""
        cells: dict[tuple[int, int], str] = {}
        row = column = 1
        for code, end, character in LANGUAGE.findall(self.output.decode(errors="replace")):
            if end == "H":
                row, column = map(int, code.split(";")) if code else (1, 1)
            elif end == "J":
                cells.clear()
            elif character:
                cells[row, column] = character
                column += 1
        rows = range(1, 1 + max((row for row, _ in cells), default=0))
        last = 1 + max((column for _, column in cells), default=0)
        return "\n".join(
            "".join(cells.get((row, column), " ") for column in range(1, last)) for row in rows
        )

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """Wait for its end: the exit code. The terminal must be as it was."""
        code = self.process.wait(TIMEOUT_SECS)
        self.read()
        assert self.output.count(ALTERNATE) == self.output.count(RESTORED) == 1
        assert self.output.rstrip().endswith((b"\x1b[?25h", RESTORED))
        assert termios.tcgetattr(self.slave) == self.before
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    open_ones: list[Screen] = []
    yield open_ones
    for screen in open_ones:
        screen.close()


def served(start: Start, name: str = "train", **options: Any) -> Child:
    server = start(roles.serve, name=name, loader_args=[10_000, 10], ring=64, **options)
    server.expect("ready")
    return server


def write_in_place() -> None:
    feed = feedline.attach("train", batch_size=10)
    for batch in feed:
        batch[0][:] = 0
        if feed.stats()["mode"] == "copy":
            break
    say("copies")
    hear()


def take_one(**options: Any) -> None:
    feed = feedline.attach("train", batch_size=10, **options)
    batches = iter(feed)
    next(batches)
    say("taken")
    hear()


def test_each_consumer_is_described(start: Start) -> None:
    server = served(start, wait_for=4)
    plain = start(take_one)
    asked = start(take_one, mode="copy")
    frozen = start(take_one, mode="readonly")
    writer = start(write_in_place)
    for child in (plain, asked, frozen):
        child.expect("taken")
    writer.expect("copies")
    view = top("train", interval_secs=0.5)
    assert (view["name"], view["state"], view["pid"]) == ("train", "running", server.pid)
    consumers = {consumer["pid"]: consumer for consumer in view["consumers"]}
    described = [
        (consumers[child.pid]["mode"], consumers[child.pid]["copies_because"])
        for child in (plain, asked, frozen, writer)
    ]
    writes = ("copy", "it writes in place")
    assert described == [("cow", None), ("copy", "asked for"), ("readonly", None), writes]
    one = consumers[plain.pid]
    assert (one["batches"], one["samples"], one["batch_size"]) == (1, 10, 10)
    assert "observing.test_top:take_one" in one["command"]
    assert one["user"]
    assert one["resident_bytes"] > one["private_bytes"] > 0
    text = feedline_run("top", "--once", env={**os.environ, "COLUMNS": "160"}).stdout
    for words in ("zero-copy", "copies: asked for", "read-only", "copies: it writes in place"):
        assert words in text
    assert str(plain.pid) in text
    assert "verdict" in text
    assert "\x1b" not in text


def test_the_ranks_of_a_job_belong_together(start: Start) -> None:
    served(start, wait_for=3)
    ranks = [start(take_one, shard=[rank, 2]) for rank in range(2)]
    alone = start(take_one)
    for child in (*ranks, alone):
        child.expect("taken")
    jobs = {one["pid"]: one["job"] for one in top("train", interval_secs=0.1)["consumers"]}
    assert jobs[ranks[0].pid] == jobs[ranks[1].pid] != jobs[alone.pid]


def test_nobody_there_is_no_bottleneck() -> None:
    with feedline.Server(Numbered(100, 10), "train", samples=100):
        eventually(lambda: top("train", interval_secs=0.1)["batches"] > 0)
        assert "nobody reads this feed" in top("train", interval_secs=0.1)["verdict"]["text"]
    with feedline.Server(Numbered(100, 10), "train", samples=100, wait_for=3):
        eventually(lambda: top("train", interval_secs=0.1)["batches"] > 0)
        assert "waits for 3 of 3 jobs" in top("train", interval_secs=0.1)["verdict"]["text"]
    assert json.loads(feedline_run("top", "--json").stdout) == []


def test_what_is_loaded_needs_no_loader() -> None:
    with (
        feedline.Server(Numbered(100, 10), "train", samples=100, replay=True),
        feedline.attach("train", batch_size=10) as feed,
    ):
        assert len(list(feed)) == 10
        verdict = top("train", interval_secs=0.1)["verdict"]
        assert verdict["kind"] == "loaded"
        assert "all 100 samples are loaded" in verdict["text"]


def test_a_first_batch_that_takes_long_shows(start: Start) -> None:
    start(roles.serve, loader="Stuck", loader_args=[0, 10])
    eventually(lambda: bool(feedline.feeds()))
    eventually(lambda: top("train", interval_secs=0.1)["loader_call_secs"] > 0)
    verdict = top("train", interval_secs=0.1)["verdict"]
    assert verdict["kind"] == "quiet"
    assert verdict["text"].startswith("starting: the loader has been at its first batch for ")
    job = start(roles.consume)
    eventually(lambda: bool(top("train", interval_secs=0.1)["consumers"]))
    feed = top("train", interval_secs=0.1)
    assert feed["verdict"]["text"].endswith(", and 1 job waits for it")
    (consumer,) = feed["consumers"]
    assert {"pid": job.pid, "joined": False, "waiting": True}.items() <= consumer.items()
    job.kill()
    eventually(lambda: not top("train", interval_secs=0.1)["consumers"])


def test_a_feed_that_does_not_run_is_an_error() -> None:
    with feedline.Server(Numbered(100, 10), "other", samples=100):
        for option in ("--once", "--json"):
            done = feedline_run("top", "other", "train", option)
            assert (done.returncode, done.stdout) == (1, "")
            first, running, start_it = done.stderr.splitlines()
            assert first.startswith('error: no feed named "train" runs for this user (looked in ')
            assert running == f"  running now: other (pid {os.getpid()})"
            assert start_it == "  start it with: feedline serve FILE.py:make_loader --name train"


def test_without_a_terminal_it_looks_once() -> None:
    with feedline.Server(Numbered(100, 10), "train", samples=100):
        done = feedline_run("top", "--interval-secs", "0.1")
        assert done.returncode == 0
        assert done.stdout.startswith("train  running  pid ")
        assert "printed once" in done.stderr


def test_one_look_is_long_enough_for_a_verdict(start: Start) -> None:
    served(start)
    start(take_one).expect("taken")
    view = top("train", interval_secs=0.1)
    assert "trainers are the bottleneck" in view["verdict"]["text"]


def test_a_silent_server_is_shown(start: Start) -> None:
    silent = served(start, name="silent")
    with feedline.Server(Numbered(100, 10), "train", samples=100):
        silent.stop()
        try:
            done = feedline_run("top", "--json", "--interval-secs", "0.1")
            text = feedline_run("top", "--once", "--interval-secs", "0.1").stdout
        finally:
            silent.resume()
        views = {view["name"]: view for view in json.loads(done.stdout)}
        assert views["silent"]["state"] == "silent"
        assert views["silent"]["pid"] == silent.pid
        assert "has not answered" in views["silent"]["error"]
        assert views["train"]["state"] == "running"
        assert f"silent  silent  pid {silent.pid}" in text
        eventually(lambda: top("silent", interval_secs=0.1)["state"] == "running")


def test_it_is_live_until_q(start: Start, screens: list[Screen]) -> None:
    server = served(start)
    reader = start(take_one)
    reader.expect("taken")
    screens.append(Screen("--interval-secs", "0.2"))
    screen = screens[0]
    screen.wait_for("train")
    screen.wait_for(str(reader.pid))
    screen.wait_for("trainers are the bottleneck")
    server.stop()
    screen.wait_for(f"train  silent  pid {server.pid}")
    server.resume()
    screen.wait_for("train  running")
    screen.press("q")
    assert screen.end() == 0


def test_feeds_come_and_go(start: Start, screens: list[Screen]) -> None:
    screens.append(Screen("--interval-secs", "0.1", NO_COLOR="1"))
    screen = screens[0]
    screen.wait_for("no feeds run for this user")
    for _ in range(2):
        server = served(start)
        screen.wait_for(f"train  running  pid {server.pid}")
        server.tell("stop")
        screen.wait_for("train ended")
    # Colours, as crossterm writes them.
    assert b"\x1b[38;5;" not in screen.output
    screen.press("\x1b")
    assert screen.end() == 0


def test_what_does_not_fit_can_be_scrolled(start: Start, screens: list[Screen]) -> None:
    for name in ("first", "second", "third"):
        served(start, name=name)
    screens.append(Screen("--interval-secs", "0.2", columns=60, rows=12))
    screen = screens[0]
    screen.wait_for("lines 1-9 of")
    assert "third" not in screen.text()
    screen.press("\x1b[F")
    screen.wait_for("third")
    screen.press("\x1b[H")
    screen.resize(100, 60)
    os.kill(screen.process.pid, signal.SIGWINCH)
    screen.wait_for("in memory")
    screen.press("\x03")
    assert screen.end() == 130


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGQUIT, -signal.SIGQUIT),
    ],
)
def test_a_signal_leaves_the_terminal_as_it_was(
    number: signal.Signals, code: int, screens: list[Screen]
) -> None:
    screens.append(Screen())
    screen = screens[0]
    screen.wait_for("no feeds run for this user")
    os.kill(screen.process.pid, number)
    assert screen.end() == code


@pytest.mark.parametrize(("is_told", "is_stopped"), [(True, False), (False, False), (True, True)])
def test_it_ends_with_its_terminal(screens: list[Screen], is_told: bool, is_stopped: bool) -> None:
    """Whether or not a signal tells it: a terminal that is gone can be read from without end."""
    screen = Screen()
    screens.append(screen)
    screen.wait_for("q quits")
    if is_stopped:
        # Wherever it is: it sees both at once.
        stop(screen.process.pid)
    if is_told:
        os.kill(screen.process.pid, signal.SIGHUP)
    os.close(screen.slave)
    os.close(screen.master)
    screen.master, screen.slave = pty.openpty()
    resume(screen.process.pid)
    assert screen.process.wait(TIMEOUT_SECS) in (0, -signal.SIGHUP)


def test_feeds_of_the_doctor_are_shown_to_who_names_them() -> None:
    with feedline.Server(Numbered(100, 10), "doctor-rust-1"):
        assert json.loads(feedline_run("top", "--once", "--json").stdout) == []
        assert top("doctor-rust-1")["name"] == "doctor-rust-1"
