"""``feedline serve``: what it shows, and how it ends, by each of the ways that there are."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from feedline._cli.progress import Progress
from feedline._cli.screen import Screen
from support import roles
from support.child import say
from support.commands import SERVED, WHEEL, Begin, begin, binary, end, environment, run
from support.loaders import Numbered
from support.processes import TESTS, processes_with
from support.waiting import eventually

__all__ = ["begin"]

FILE = str(SERVED)


def read_on(batch_size: int = 10) -> None:
    """Read epoch after epoch until something is raised; report the first batch."""
    feed = feedline.attach("train", batch_size=batch_size)
    batches = itertools.chain.from_iterable(itertools.repeat(feed))
    next(batches)
    say("reading")
    for _ in batches:
        pass


def test_all_epochs_are_told_and_the_end_is_good(begin: Begin, start: Start) -> None:
    serving = begin("serve", f"{FILE}:numbered", "--name", "train", "--epochs", "2")
    serving.until("attach with: feedline.attach")
    consumer = start(roles.consume, epochs=2, batch_size=10)
    assert serving.exit_code() == 0
    assert consumer.exit_code() == 0
    for part in (f"pid {consumer.pid} joined", "is done: 2 epochs, 80 samples"):
        assert part in serving.said
    # Epochs that follow each other quickly share a line.
    assert sum(map(int, re.findall(r"loaded: (\d+) samples", serving.said))) == 80
    assert serving.printed == ""
    assert "\x1b" not in serving.said


def test_an_epoch_that_all_left_is_not_told_as_loaded(begin: Begin, start: Start) -> None:
    serving = begin(
        *("serve", f"{FILE}:numbered", "--arg", "samples=4000", "--samples", "4000"),
        *("--name", "train", "--ring", "200"),
    )
    serving.until("serving")
    first = start(roles.take_and_hold, batches=50, batch_size=10)
    first.expect("holding")
    first.kill()
    # It waits for the next epoch, which begins at once: the beginning of this one is gone.
    start(roles.take_and_hold, batches=1, batch_size=10).expect("holding")
    serving.until("of 4,000 samples: nobody reads it any more\n")
    assert "epoch 0 broken off at " in serving.said
    assert "loaded" not in serving.said


def test_one_that_goes_on_counts_only_its_own_samples(
    begin: Begin, start: Start, tmp_path: Path
) -> None:
    args = [
        *("serve", f"{FILE}:resumable", "--samples", "400", "--name", "train"),
        *("--ring", "40", "--state-file", str(tmp_path / "state")),
    ]
    first = begin(*args)
    first.until("serving")
    start(roles.take_and_hold, batches=20, batch_size=10).expect("holding")
    first.signal(signal.SIGINT)
    assert first.exit_code() == 130
    second = begin(*args)
    # It fills the ring, and waits.
    eventually(lambda: _stats().get("batches", 0) == 4)
    second.signal(signal.SIGINT)
    assert second.exit_code() == 130
    assert "ended in epoch 0, 40 samples in 0:0" in second.said


class Recorder(Screen):
    """Keeps what is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.last = ""

    def line(self, text: str) -> None:
        self.lines.append(text)

    def status(self, text: str) -> None:
        self.last = text


def test_progress_begins_where_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Recorder()
    progress = Progress(screen)
    stats = {**_stats_of_a_new_one(), "samples_per_epoch": 1000, "gate_open": True}

    def show(secs: float, **more: Any) -> None:
        monkeypatch.setattr("feedline._cli.progress.monotonic", lambda: secs)
        stats.update(more)
        progress.show(stats)

    show(0, epoch=3, samples=900)
    assert "waiting for the loader's first batch" in screen.last
    show(1, samples=910, epoch_samples=910, state="running")
    assert screen.last.startswith("epoch 3 ")
    show(11, epoch=4, samples=1010, epoch_samples=10)
    assert screen.lines == ["epoch 3 loaded: 100 samples in 0:11, 9 samples/s"]
    show(12, epoch=4, samples=2000, epoch_samples=1000, state="ended")
    assert progress.summary(stats) == "2 epochs, 1,100 samples in 0:11"


def test_an_epoch_is_broken_off_at_its_own_sample() -> None:
    screen = Recorder()
    progress = Progress(screen)
    stats = _stats_of_a_new_one()
    progress.show({**stats, "samples": 900, "samples_per_epoch": 1000})
    abandoned = {**stats["event_counts"], "abandoned": 1}
    more = {"state": "ended", "samples": 950, "samples_per_epoch": 1000}
    progress.show({**stats, **more, "event_counts": abandoned})
    (line,) = screen.lines
    assert line.startswith("epoch 0 broken off at 950 of 1,000 samples")


def test_batches_that_cannot_be_cut_are_counted_as_such(begin: Begin, start: Start) -> None:
    serving = begin(
        "serve", f"{FILE}:numbered", "--name", "train", "--epochs", "2", "--whole-batches"
    )
    serving.until("attach with: feedline.attach")
    consumer = start(roles.consume, epochs=2)
    assert serving.exit_code() == 0
    assert consumer.exit_code() == 0
    assert "is done: 2 epochs, 8 batches" in serving.said
    assert " batches/s" in serving.said
    assert "sample" not in serving.said


@pytest.mark.parametrize(
    ("number", "code", "why"),
    [
        (signal.SIGINT, 130, "it was interrupted (Ctrl-C)"),
        (signal.SIGTERM, 0, "it was told to stop (SIGTERM)"),
        (signal.SIGHUP, 0, "it was told to stop (SIGHUP)"),
    ],
)
def test_a_signal_ends_it_and_consumers_learn_why(
    begin: Begin, start: Start, number: int, code: int, why: str
) -> None:
    serving = begin("serve", f"{FILE}:numbered", "--name", "train")
    serving.until("serving")
    consumer = start(read_on)
    consumer.expect("reading")
    serving.signal(number)
    assert serving.exit_code() == code
    assert serving.said.count(why) == 1
    assert "Traceback" not in serving.said
    consumer.expect_error(feedline.ServerLostError, why)


@pytest.mark.parametrize(("is_deaf", "killed"), [(False, False), (True, True)])
def test_a_loader_that_hangs_does_not_keep_it(begin: Begin, is_deaf: bool, killed: bool) -> None:
    serving = begin("serve", f"{FILE}:hanging", "--arg", f"is_deaf={is_deaf}", "--name", "train")
    serving.until("hanging")
    serving.signal(signal.SIGINT)
    assert serving.exit_code() == 130
    assert ("killed" in serving.said) == killed


def test_a_second_interrupt_kills_at_once(begin: Begin) -> None:
    serving = begin("serve", f"{FILE}:hanging", "--arg", "is_deaf=True", "--name", "train")
    serving.until("hanging")
    serving.signal(signal.SIGINT)
    serving.until("interrupted")
    time.sleep(0.3)  # pause: presses of a key are further apart than two reports of one press
    serving.signal(signal.SIGINT)
    assert serving.exit_code() == 130
    assert "asked for twice: killed" in serving.said


STUBBORN = """
import sys, time
def make_loader():
    try:
        # Where an interrupt is swallowed from here on.
        print("making", file=sys.stderr, flush=True)
        time.sleep(60)
    except BaseException:
        pass
    {then}
    return [[1]]
"""


def test_an_interrupt_that_the_loaders_module_swallows_counts(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN.format(then="pass"))
    serving = begin("serve", f"{tmp_path}/stubborn.py:make_loader", "--name", "train")
    serving.until("making")
    serving.signal(signal.SIGINT)
    assert serving.exit_code() == 130
    assert "interrupted before the feed began" in serving.said
    assert not feedline.feeds()


def test_a_second_one_kills_while_the_loader_is_made(begin: Begin, tmp_path: Path) -> None:
    then = "print('again', file=sys.stderr, flush=True); time.sleep(60)"
    (tmp_path / "stubborn.py").write_text(STUBBORN.format(then=then))
    serving = begin("serve", f"{tmp_path}/stubborn.py:make_loader", "--name", "train")
    serving.until("making")
    serving.signal(signal.SIGINT)
    serving.until("again")
    time.sleep(0.3)  # pause: as above
    serving.signal(signal.SIGINT)
    assert serving.exit_code() == 130


def test_stop_says_who(begin: Begin) -> None:
    serving = begin("serve", f"{FILE}:numbered", "--name", "train")
    serving.until("serving")
    stopped = run("stop", "train")
    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert stopped.stderr == f"stopped train (pid {serving.pid})\n"
    assert serving.exit_code() == 0
    assert "told its server to stop" in serving.said


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_find_the_file_and_do_not_survive(
    begin: Begin, start: Start, folder: Path, context: str
) -> None:
    serving = begin("serve", f"{FILE}:workers", "--arg", f"context={context}", "--name", "train")
    serving.until("serving")
    consumer = start(read_on, batch_size=8)
    consumer.expect("reading")
    serving.signal(signal.SIGINT)
    assert serving.exit_code() == 130, serving.said
    consumer.expect_error(feedline.ServerLostError)
    consumer.exit_code()
    eventually(lambda: not processes_with(str(folder)))


def test_what_the_loader_raises_is_shown_without_our_frames(begin: Begin, start: Start) -> None:
    serving = begin("serve", f"{FILE}:failing", "--name", "train")
    assert serving.exit_code() == 1
    assert "its loader raised ValueError: sample 16 is broken" in serving.said
    assert "in failing" in serving.said
    assert "feedline/_" not in serving.said
    assert "try it alone: " in serving.said


def test_a_loader_that_is_given_up_on_is_an_error(begin: Begin) -> None:
    serving = begin(
        *("serve", f"{FILE}:hanging", "--name", "train"),
        *("--loader-warn-secs", "0.1", "--loader-timeout-secs", "0.3"),
    )
    assert serving.exit_code() == 1
    assert "error: " in serving.said


def test_a_time_of_nothing_is_not_the_default(begin: Begin, start: Start) -> None:
    serving = begin("serve", f"{FILE}:numbered", "--name", "train", "--linger-secs", "0")
    serving.until("serving")
    assert start(roles.consume, batch_size=10).exit_code() == 0
    assert serving.exit_code() == 0
    assert "nobody was attached for 0 s" in serving.said


def test_options_reach_the_server(begin: Begin) -> None:
    serving = begin(
        *("serve", f"{FILE}:numbered", "--name", "train", "--ring", "20", "--history", "1.0"),
        *("--lag", "history", "--wait-for", "3", "--epochs", "7", "--replay"),
    )
    serving.until("serving")
    eventually(lambda: bool(_stats().get("samples")))
    stats = _stats()
    assert (stats["lag"], stats["wait_for"], stats["epochs"]) == ("history", 3, 7)
    assert stats["replay"]


def test_a_path_need_not_be_unicode(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    serving = begin(*("serve", f"{FILE}:numbered", "--name", "train", "--metrics-file", str(path)))
    serving.until("serving")
    eventually(path.exists)


LITTLE_MEMORY = """\
import resource
from support.loaders import Numbered

class Loader:
    def __iter__(self):
        yield from Numbered(400, 10, width=200_000)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
"""


def test_log_lines_name_flags(begin: Begin, start: Start, tmp_path: Path) -> None:
    """How long the epoch is shows at its end, and then there is no memory for a history."""
    (tmp_path / "little_memory.py").write_text(LITTLE_MEMORY)
    serving = begin(
        *("serve", "little_memory.py:Loader", "--name", "train", "--history", "1.0"),
        *("--epochs", "2"),
        cwd=tmp_path,
        PYTHONPATH=str(TESTS),
    )
    serving.until("serving")
    assert start(roles.consume, batch_size=10).exit_code() == 0
    serving.until("goes on without a history")
    serving.until("give a smaller --history or --ring, or --history-dir a folder")
    assert "(batches of 2.0 MB)" in serving.said, serving.said


def test_a_module_is_found_from_the_folder_one_is_in(begin: Begin) -> None:
    serving = begin("serve", "served:generated", "--name", "train", cwd=SERVED.parent)
    serving.until("serving")
    serving.signal(signal.SIGTERM)
    assert serving.exit_code() == 0


def test_a_loader_may_be_named_itself(begin: Begin, start: Start) -> None:
    serving = begin("serve", f"{FILE}:READY", "--name", "train", "--epochs", "1")
    serving.until("serving")
    start(roles.consume, batch_size=10).expect("attached")
    assert serving.exit_code() == 0


def test_workers_take_signals_as_in_any_program(begin: Begin) -> None:
    """A worker that is told to end must not run handlers that are its parent's."""
    serving = begin("serve", f"{FILE}:forking", "--name", "train")
    serving.until("serving")
    with feedline.attach("train", format="numpy") as feed:
        [signals] = next(iter(feed))
    assert signals.tolist() == [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    serving.signal(signal.SIGTERM)
    assert serving.exit_code() == 0


def test_on_a_terminal_there_is_a_bar(start: Start) -> None:
    ours, theirs = pty.openpty()
    serving = subprocess.Popen(
        [*WHEEL, "serve", f"{FILE}:numbered", "--name", "train"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(TERM="xterm", COLUMNS="100"),
    )
    os.close(theirs)
    try:
        start(read_on).expect("reading")
        shown = b""
        while b"samples/s" not in shown or b"1 consumer" not in shown:
            shown += os.read(ours, 4096)
        text = shown.decode()
        assert "epoch " in text
        assert "%  " in text
    finally:
        # Nobody reads the terminal any more.
        os.close(ours)
        end(serving)


def test_one_that_serves_from_python_says_so_and_why_it_ended(start: Start) -> None:
    server = start(serve_and_log)
    consumer = start(read_on)
    consumer.expect("reading")
    server.signal(signal.SIGINT)
    server.expect_error(KeyboardInterrupt)
    assert 'serving feed "train"' in server.stderr
    consumer.expect_error(feedline.ServerLostError, "it was interrupted (Ctrl-C)")


def serve_and_log() -> None:
    logging.basicConfig(level=logging.INFO)
    feedline.serve(Numbered(40, 10), "train")


def _stats_of_a_new_one() -> dict[str, Any]:
    core = feedline.Server(Numbered(40, 10), "train")._bind()
    stats = core.stats()
    core.stop("the test is over")
    return stats


def _stats() -> dict[str, Any]:
    listed = json.loads(run("ls", "--json", program=binary()).stdout)
    return listed[0]["stats"] or {} if listed else {}
