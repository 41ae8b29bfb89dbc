"""Two jobs, one name: they share if their loaders are one, and are told in what they differ."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.identity_scripts import run
from support.share_scripts import SAMPLES, ids, numbers
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]

SCRIPT = """
    import argparse, feedline, numpy as np, sys
    import beside

    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--mismatch", default="error")
    parser.add_argument("--key")
    args = parser.parse_args()

    def make_loader():
        return [beside.fill(args.size)]

    feed = feedline.share(
        make_loader, "train", linger_secs=600, mismatch=args.mismatch, key=args.key)
    print(next(iter(feed)).tolist())
"""


class Scripts:
    """A script in a folder, and the feed that it leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
        self.write_beside("np.zeros(size)")

    def write_beside(self, body: str) -> None:
        text = f"import numpy as np\ndef fill(size):\n    return {body}\n"
        (self.folder / "beside.py").write_text(text)

    def run(self, *args: str) -> tuple[str, str]:
        command = [sys.executable, "-B", str(self.folder / "train.py"), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout.strip(), done.stderr


@pytest.fixture
def scripts(tmp_path: Path, folder: Path) -> Iterator[Scripts]:
    yield Scripts(tmp_path)
    stop()


def stop() -> None:
    subprocess.run([sys.executable, "-m", "feedline", "stop", "train"], check=True, timeout=60)


def test_another_size_is_an_error_that_names_it(scripts: Scripts) -> None:
    assert scripts.run() == ("[0.0, 0.0, 0.0, 0.0]", "")
    assert scripts.run("--lr", "0.5") == ("[0.0, 0.0, 0.0, 0.0]", "")
    pid = feedline.feeds()[0].pid
    out, said = scripts.run("--size", "2")
    assert out == ""
    assert f"args.size: 4 in the running feed (pid {pid}), 2 here" in said
    assert "FeedMismatchError" in said
    assert "args.lr" not in said
    for way_out in ("another name", "feedline stop train", 'mismatch="warn"', "key=..."):
        assert way_out in said


def test_with_a_warning_what_is_served_is_read(scripts: Scripts) -> None:
    scripts.run()
    out, said = scripts.run("--size", "2", "--mismatch", "warn")
    assert out == "[0.0, 0.0, 0.0, 0.0]"
    assert "args.size: 4 in the running feed" in said


def test_a_module_that_was_edited_while_the_server_lingers(scripts: Scripts) -> None:
    scripts.run()
    scripts.write_beside("np.ones(size)")
    out, said = scripts.run()
    assert out == ""
    assert "source of beside.fill: beside.py:2 in the running feed" in said


def test_with_a_key_only_keys_are_compared(scripts: Scripts) -> None:
    assert scripts.run("--key", "small") == ("[0.0, 0.0, 0.0, 0.0]", "")
    assert scripts.run("--key", "small", "--size", "2") == ("[0.0, 0.0, 0.0, 0.0]", "")
    assert "key: 'small' in the running feed" in scripts.run("--key", "large")[1]
    assert "none here" in scripts.run()[1]


CELL = """
class Numbers:
    def __iter__(self):
        yield np.arange({count})
def make_loader():
    return Numbers()
"""


def test_a_class_that_was_defined_anew_in_a_notebook() -> None:
    first = run(CELL.format(count=4))["make_loader"]
    again = run(CELL.format(count=4))["make_loader"]
    other = run(CELL.format(count=5))["make_loader"]
    with feedline.share(first, "train", linger_secs=0.1):
        feedline.share(again, "train", linger_secs=0.1).close()
        with pytest.raises(feedline.FeedMismatchError, match=r"source of Numbers\.__iter__"):
            feedline.share(other, "train", linger_secs=0.1)


def test_an_option_that_changes_the_data_is_a_mismatch() -> None:
    with (
        feedline.share(numbers, "train", linger_secs=0.1, replay=True),
        pytest.raises(feedline.FeedMismatchError, match="replay: True in the running feed"),
    ):
        feedline.share(numbers, "train", linger_secs=0.1)


def test_what_cannot_be_compared_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng()
    with caplog.at_level(logging.WARNING, "feedline"):
        for _ in range(2):
            feedline.share(lambda: [rng.random(3)], "train", linger_secs=0.1).close()
    assert ["rng (a generator without a seed)" in message for message in caplog.messages] == [True]


def test_a_loader_with_very_many_objects(folder: Path) -> None:
    """However much there is to compare, it is compared."""
    kinds = [make_many(1), make_many(1), make_many(2)]
    with feedline.share(kinds[0], "train", linger_secs=0.1):
        assert (folder / "train.share").stat().st_size < 1 << 20
        feedline.share(kinds[1], "train", linger_secs=0.1).close()
        with pytest.raises(feedline.FeedMismatchError, match="samples"):
            feedline.share(kinds[2], "train", linger_secs=0.1)


class Sample:
    """One of many."""

    def __init__(self, path: str, label: int) -> None:
        self.path, self.label = path, label

    def __len__(self) -> int:
        return self.label


def make_many(factor: int) -> Any:
    samples = [Sample(f"/d/{number}", number * factor) for number in range(20_000)]
    return lambda: [np.array([one.label for one in samples[:4]])]


def test_a_record_that_cannot_be_read_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with feedline.share(numbers, "train", linger_secs=0.1):
        record = folder / "train.share"
        whole = record.read_bytes()
        record.write_bytes(whole[:-10])
        with caplog.at_level(logging.WARNING, "feedline"):
            feedline.share(others, "train", linger_secs=0.1).close()
        assert "is not compared with the loader asked for here" in caplog.text
        record.write_bytes(whole)


def test_a_file_that_the_loader_reads_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"

    def make_loader() -> list[np.ndarray]:
        return [np.zeros(int(path.read_text()))]

    path.write_text("3")
    with feedline.share(make_loader, "train", linger_secs=0.1):
        feedline.share(make_loader, "train", linger_secs=0.1).close()
        path.write_text("44")
        with pytest.raises(feedline.FeedMismatchError, match=r"file .*sizes.txt: 1 B in the"):
            feedline.share(make_loader, "train", linger_secs=0.1)


def test_a_file_that_the_loader_writes_and_reads_back_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "made.txt"

    def make_loader() -> list[np.ndarray]:
        path.write_text("3")
        return [np.zeros(int(path.read_text()))]

    with caplog.at_level(logging.WARNING, "feedline"):
        for _ in range(2):
            feedline.share(make_loader, "train", linger_secs=0.1).close()
    (said,) = [one.getMessage() for one in caplog.records]
    assert "made.txt (make_loader writes it and reads it back)" in said
    assert "key=" in said


def test_a_part_under_its_full_name_is_compared() -> None:
    both: dict[str, Any] = {"train": numbers, "val": others}
    with feedline.share(both, "mm", linger_secs=0.1)["train"]:
        feedline.share(others, "mm.val", linger_secs=0.1).close()
        with pytest.raises(feedline.FeedMismatchError, match=r"source of .*numbers"):
            feedline.share(numbers, "mm.val", linger_secs=0.1)


def test_a_part_that_is_served_by_itself_is_compared() -> None:
    both: dict[str, Any] = {"val": others}
    with feedline.share(others, "mm.val", linger_secs=0.1):
        feedline.share(both, "mm", linger_secs=0.1)["val"].close()
        with pytest.raises(feedline.FeedMismatchError, match=r"source of .*numbers"):
            feedline.share({"val": numbers}, "mm", linger_secs=0.1)


def test_a_mismatch_says_nothing_of_a_log(folder: Path) -> None:
    def loud() -> list[Any]:
        print("loading")
        return [np.arange(4)]

    with (
        feedline.share(loud, "train", linger_secs=0.1),
        pytest.raises(feedline.FeedMismatchError) as raised,
    ):
        feedline.share(numbers, "train", linger_secs=0.1)
    assert "printed" not in str(raised.value)


def test_a_generator_in_another_state_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rngs = [random.Random(), random.Random()]
    with (
        caplog.at_level(logging.WARNING, "feedline"),
        feedline.share(make_drawn(rngs[0]), "train", linger_secs=0.1),
    ):
        feedline.share(make_drawn(rngs[0]), "train", linger_secs=0.1).close()
        assert not caplog.text
        feedline.share(make_drawn(rngs[1]), "train", linger_secs=0.1).close()
    assert "may serve another loader than the one asked for here" in caplog.text
    assert "rng: a random.Random in the running feed" in caplog.text


def make_drawn(rng: random.Random) -> Any:
    return lambda: [np.array([rng.random()])]


@pytest.mark.parametrize("key", [Path("/data"), np.int64(3), (Path("/a"), np.float32(0.5))])
def test_a_key_of_what_scripts_have_at_hand(key: object) -> None:
    with feedline.share(numbers, "train", linger_secs=0.1, key=key):
        feedline.share(others, "train", linger_secs=0.1, key=key).close()
        with pytest.raises(feedline.FeedMismatchError, match="key"):
            feedline.share(numbers, "train", linger_secs=0.1, key="other")


def test_a_server_started_by_hand_is_taken_as_it_is() -> None:
    """Whatever a shared one of that name, which was killed, has left."""
    with feedline.share(numbers, "train", linger_secs=0.1) as feed:
        os.kill(feed.stats()["server_pid"], signal.SIGKILL)
    eventually(lambda: not feedline.feeds())
    with (
        feedline.Server([np.arange(5)], "train"),
        feedline.share(lambda: [np.arange(7)], "train", batch_size=5) as feed,
    ):
        assert ids(feed) == [0, 1, 2, 3, 4]


def others() -> list[Any]:
    return [np.arange(first, first + 12) + 1000 for first in range(0, SAMPLES, 12)]


class OneEpoch:
    """Hangs in its second one."""

    def __init__(self) -> None:
        self.epochs = 0

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        if self.epochs > 1:
            threading.Event().wait()
        yield from numbers()


def follow(*, batches: int) -> None:
    """Read some, and go on once told to."""
    options: dict[str, Any] = {"batch_size": 7, "samples": SAMPLES, "linger_secs": 0.2}
    feed = feedline.share(OneEpoch, "train", reconnect_secs=60.0, **options)
    epoch = iter(feed)
    for _ in range(batches):
        next(epoch)
    say("began", server=feed.stats()["server_pid"])
    hear()
    say("read", ids=[int(i) for part in (epoch, feed) for batch in part for i in batch])


@pytest.mark.parametrize(
    ("batches", "error", "words"),
    [
        (1, feedline.ServerLostError, ["another run"]),
        (9, feedline.FeedMismatchError, ["source of", "others"]),
    ],
    ids=["in an epoch", "between epochs"],
)
def test_another_loader_in_the_place_of_a_server_that_died(
    start: Start, batches: int, error: type[Exception], words: list[str]
) -> None:
    """A job that comes back to the name must not go on with another job's data."""
    job = start(follow, batches=batches)
    server = job.expect("began")["server"]
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not feedline.feeds())
    options: dict[str, Any] = {"batch_size": 7, "samples": SAMPLES, "linger_secs": 0.2}
    with feedline.share(others, "train", **options):
        job.tell("go on")
        job.expect_error(error, *words)


def test_a_loader_that_is_named_as_its_feed_does_not_serve_itself(tmp_path: Path) -> None:
    """What the function refers to counts as it was when it was shared."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, signal, feedline, numpy as np
        loader = [np.arange(i, i + 12) for i in range(0, 60, 12)]
        loader = feedline.share(lambda: loader, "train", batch_size=7, ring=24, linger_secs=0.2,
            reconnect_secs=60)
        batches = iter(loader)
        found = next(batches).tolist()
        os.kill(loader.stats()["server_pid"], signal.SIGKILL)
        for batch in batches:
            found += batch.tolist()
        assert found == list(range(60)), found
        print("exact")
    """)
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "exact\n", done.stderr


def test_a_feed_cannot_be_its_own_loader() -> None:
    with feedline.share(numbers, "train", linger_secs=0.1) as feed:
        os.kill(feed.stats()["server_pid"], signal.SIGKILL)
        eventually(lambda: not feedline.feeds())
        with pytest.raises(feedline.FeedValueError, match='refers to feed "train" itself'):
            feedline.share(lambda: feed, "train", linger_secs=0.1)
