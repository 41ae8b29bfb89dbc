"""`feedline metrics`: the numbers of all feeds of a user; and the Grafana dashboard over them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from observing.test_metrics import lines
from support import roles
from support.loaders import Endless
from support.processes import TESTS
from support.prometheus import numbers, scrape
from support.waiting import TIMEOUT_SECS, eventually

COMMAND = [sys.executable, "-m", "feedline", "metrics"]
DASHBOARD = TESTS.parent / "etc" / "grafana-dashboard.json"

Watch = Callable[..., subprocess.Popen[str]]


def once(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=TIMEOUT_SECS
    )


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Start `feedline metrics` with these options; it is gone when the test ends."""
    started = []

    def start_one(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([*COMMAND, *options], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def two_feeds() -> Iterator[None]:
    with feedline.Server(Endless(10), "train"), feedline.Server(Endless(10), "val"):
        yield


def up(text: str) -> dict[str, float]:
    return {dict(labels)["feed"]: number for labels, number in numbers(text)["feedline_up"].items()}


@pytest.mark.usefixtures("two_feeds")
def test_once_prints_all_feeds() -> None:
    for options in ([], ["--once"]):
        done = once(*options)
        assert (done.returncode, done.stderr) == (0, "")
        assert up(done.stdout) == {"train": 1, "val": 1}
        assert len(numbers(done.stdout)["feedline_samples_total"]) == 2


def test_no_feeds(folder: Path) -> None:
    done = once()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"no feeds run for this user (looked in {folder})\n"


def test_a_feed_that_does_not_answer_is_not_up(start: Start) -> None:
    server = start(roles.serve, loader="Endless", loader_args=[10])
    server.expect("ready")
    server.stop()
    done = once()
    server.resume()
    assert done.returncode == 0
    assert list(numbers(done.stdout)) == ["feedline_up"]
    assert up(done.stdout) == {"train": 0}
    assert f"no numbers of train (pid {server.pid}): " in done.stderr


@pytest.mark.usefixtures("two_feeds")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_port_and_file_until_a_signal(
    watch: Watch, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path = tmp_path / "feeds.jsonl"
    process = watch("--port", "0", "--file", str(path), "--interval-secs", "0.1")
    assert process.stderr is not None
    said = re.fullmatch(
        r"answering Prometheus on http://127.0.0.1:(\d+)/metrics; Ctrl-C ends it\n",
        process.stderr.readline(),
    )
    assert said
    assert process.stderr.readline() == (
        f"appending a line per feed to {path} every 0.1 s; Ctrl-C ends it\n"
    )
    port = int(said[1])
    assert up(scrape(port)) == {"train": 1, "val": 1}
    with feedline.Server(Endless(10), "late"):
        assert up(scrape(port)) == {"late": 1, "train": 1, "val": 1}
        eventually(lambda: {line["name"] for line in lines(path)} == {"late", "train", "val"})
    assert up(scrape(port)) == {"train": 1, "val": 1}
    process.send_signal(number)
    assert process.wait(TIMEOUT_SECS) == code
    assert process.stderr.read() == ""
    assert {line["pid"] for line in lines(path)} == {os.getpid()}
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = once("--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: cannot answer Prometheus on 127.0.0.1:{port}: another process has that port\n"
        "  choose another port, or 0 for any that is free\n"
    )
    path = tmp_path / "missing" / "feeds.jsonl"
    done = once("--file", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: cannot write metrics to {path}: No such file or directory (os error 2)\n"
        "  name a file in a folder that exists, and that you may write to\n"
    )
    for wrong in (["--once", "--port", "1"], ["--port", "http"], ["--interval-secs", "0"]):
        assert once(*wrong).returncode == 2


@pytest.mark.usefixtures("two_feeds")
def test_a_full_disk_does_not_end_it(watch: Watch) -> None:
    process = watch("--file", "/dev/full", "--interval-secs", "0.1", "--port", "0")
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(3)]
    (warning,) = [line for line in said if line.startswith("warning: ")]
    assert "cannot write metrics to /dev/full: No space left on device" in warning
    port = re.search(r"127.0.0.1:(\d+)", "".join(said))
    assert port
    assert up(scrape(int(port[1]))) == {"train": 1, "val": 1}


def panels() -> list[dict[str, Any]]:
    everything = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in everything if panel["type"] != "row"]


def test_the_dashboard_asks_for_what_there_is() -> None:
    feed_and_reader = feedline.Server(Endless(10), "train", history="1MB", samples=1000)
    with feed_and_reader:
        feed = feedline.attach("train", batch_size=7)
        next(iter(feed))
        told = numbers(once().stdout)
        feed.close()
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    asked += [note["expr"] for note in dashboard["annotations"]["list"] if "expr" in note]
    asked += [
        variable["definition"]
        for variable in dashboard["templating"]["list"]
        if "definition" in variable
    ]
    assert len(asked) > 20
    for expression in asked:
        names = re.findall(r"\bfeedline_\w+", expression)
        assert names, expression
        for name in names:
            assert name in told, expression
            labels = {label for sample in told[name] for label, _ in sample}
            wanted = re.findall(rf"{name}\{{([^}}]*)\}}", expression)
            assert set(re.findall(r"(\w+)\s*[=!]~?", "".join(wanted))) <= labels, expression
            # What only grows is shown as a rate, and nothing else is.
            is_rate = re.search(rf"(rate|increase)\({name}\{{", expression) is not None
            assert is_rate == name.endswith("_total"), expression
        for left, right in ("()", "{}", "[]"):
            assert expression.count(left) == expression.count(right), expression


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 39
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "datasource",
        "feed",
    }
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
