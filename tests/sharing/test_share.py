"""One script, started many times: the first one starts the server, all attach, the last leaves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from feedline._loader import Anew
from support.share_scripts import SAMPLES, ids, numbers, run_script
from support.waiting import allow_to_go_wrong, eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]


def test_who_is_allowed_may_come_from_an_iterator() -> None:
    """It gives them once; server and consumer ask for them."""
    uid = os.getuid()
    allowed: Any = (who for who in [np.int64(uid)])
    with feedline.share(lambda: [np.arange(8)], "train", allow=allowed, epochs=1) as feed:
        assert [batch.tolist() for batch in feed] == [list(range(8))]


def test_four_seeds_prepare_each_sample_once(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        import json, os, torch
        import feedline
        from torch.utils.data import DataLoader, Dataset

        class Costly(Dataset):
            def __len__(self):
                return 60
            def __getitem__(self, index):
                with open("prepared", "a") as file:
                    file.write(f"{index}\\n")
                return torch.full((3,), float(index)), index

        dataset = Costly()
        loader = feedline.share(
            lambda: DataLoader(dataset, batch_size=10, shuffle=True, num_workers=2),
            "train", batch_size=8, wait_for=4, epochs=2, linger_secs=0.2)
        found = []
        for epoch in range(2):
            batches = list(loader)
            assert [len(ids) for _, ids in batches] == [8] * 7 + [4] and len(loader) == 8
            assert all(int(x[0]) == i for xs, ids in batches for x, i in zip(xs, ids))
            found.append([int(i) for _, ids in batches for i in ids])
        assert isinstance(loader, DataLoader)
        server = loader.stats()["server_pid"]
        print(json.dumps({"ids": found, "server": server, "pid": os.getpid()}))
    """
    monkeypatch.chdir(tmp_path)
    jobs = run_script(tmp_path / "train.py", script, copies=4)
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in jobs[0]["ids"])
    assert all(job["ids"] == jobs[0]["ids"] for job in jobs)
    assert len({job["server"] for job in jobs}) == 1
    assert jobs[0]["server"] not in [job["pid"] for job in jobs]
    prepared = (tmp_path / "prepared").read_text().split()
    assert sorted(prepared) == sorted([str(index) for index in range(SAMPLES)] * 2)
    eventually(lambda: not list(folder.iterdir()))


SCRIPTS = {
    "a function of a module beside it": "from beside import make_loader",
    "a function of the script": "def make_loader():\n    return numbers()",
    "a lambda": "make_loader = lambda: numbers()",
    "a closure": (
        "def maker(count):\n    def make():\n        return Numbers(count)\n    return make\n"
        "make_loader = maker(60)"
    ),
    "a generator function": "def make_loader():\n    yield from numbers()",
    "a method": "make_loader = Numbers(60).copy",
}


@pytest.mark.parametrize("where", SCRIPTS)
def test_make_loader_may_be(where: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import numpy as np\ndef make_loader():\n"
        "    return [np.arange(i, i + 12) for i in range(0, 60, 12)]\n"
    )
    text = f"""
import json, sys, numpy as np
import feedline
with open(__file__ + ".ran", "a") as file:
    file.write("once\\n")

class Numbers:
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        for first in range(0, self.count, 12):
            yield np.arange(first, first + 12)
    def copy(self):
        return Numbers(self.count)

def numbers():
    assert sys.argv[1:] == ["--seed", "3"]
    return Numbers(60)

{SCRIPTS[where]}
feed = feedline.share(make_loader, "train", batch_size=7, linger_secs=0.1)
print(json.dumps([[int(i) for batch in feed for i in batch] for _ in range(2)]))
"""
    script = tmp_path / "train.py"
    assert run_script(script, text, args=("--seed", "3")) == [[list(range(SAMPLES))] * 2]
    assert Path(f"{script}.ran").read_text() == "once\n"  # nothing of it ran in the server


def test_there_may_be_no_script_at_all() -> None:
    text = (
        "import feedline, numpy as np\n"
        "feed = feedline.share(lambda: [np.arange(9)], 'train', linger_secs=0.1)\n"
        "print([len(batch) for batch in feed])"
    )
    for command in ([sys.executable, "-c", text], [sys.executable, "-"]):
        given = text if command[-1] == "-" else None
        done = subprocess.run(command, input=given, text=True, capture_output=True, timeout=60)
        assert done.stdout == "[9]\n", done.stderr


def test_the_server_is_nobodys_child_and_leaves_after_the_last_consumer(folder: Path) -> None:
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.3) as feed:
        pid = feed.stats()["server_pid"]
        assert ids(feed) == list(range(SAMPLES))
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert parent != os.getpid()
        assert os.getsid(pid) != os.getsid(0)
        allow_to_go_wrong(1.0)  # somebody is attached for longer than it lingers
        assert [one.pid for one in feedline.feeds()] == [pid]
    eventually(lambda: not feedline.feeds())
    # What it had to say, of a machine that stood still, may stay.
    eventually(lambda: all(path.suffix == ".log" for path in folder.iterdir()))
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1) as again:
        assert again.stats()["server_pid"] != pid
        assert ids(again) == list(range(SAMPLES))


def slow_to_yield() -> Iterator[Any]:
    time.sleep(6.0)  # pause: slow on purpose
    yield np.arange(4)


def test_a_first_batch_may_take_longer_than_the_server_lingers() -> None:
    with feedline.share(slow_to_yield, "train", linger_secs=0.1) as feed:
        assert [len(batch) for batch in feed] == [4]


def test_what_the_script_defines_comes_back_from_workers(tmp_path: Path) -> None:
    text = """
        import json, sys, torch
        import feedline
        from dataclasses import dataclass
        from torch.utils.data import DataLoader

        class Broken(Exception):
            pass

        @dataclass
        class Pair:
            x: torch.Tensor
            y: torch.Tensor

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 100
            def __getitem__(self, index):
                if index == 99:
                    raise Broken("the last one")
                return index

        def collate(items):
            return Pair(torch.tensor(items), torch.zeros(len(items)))

        if __name__ == "__main__":
            loader = feedline.share(
                lambda: DataLoader(Data(), 4, collate_fn=collate, num_workers=1,
                    multiprocessing_context=sys.argv[1]), "train", linger_secs=0.1, ring=16)
            found = []
            try:
                for pair in loader:
                    assert type(pair) is Pair
                    found += pair.x.tolist()
            except feedline.LoaderError as error:
                assert "Broken: the last one" in str(error), error
                print(json.dumps(found))
    """
    for method in ("fork", "spawn"):
        assert run_script(tmp_path / "train.py", text, args=(method,)) == [list(range(96))]


def chatty() -> list[Any]:
    print("the loader says hello")
    return numbers()


def test_what_the_loader_prints_is_in_the_log(folder: Path) -> None:
    with feedline.share(chatty, "train", linger_secs=0.1) as feed:
        next(iter(feed))
        assert "the loader says hello" in (folder / "train.log").read_text()
    eventually(lambda: not feedline.feeds())
    left = {"train.log", "train.share"}
    eventually(lambda: {path.name for path in folder.iterdir()} == left)


def test_one_that_is_served_by_hand_is_attached_to() -> None:
    with (
        feedline.Server([np.arange(5)], "train"),
        feedline.share(numbers, "train", batch_size=5) as feed,
    ):
        assert feed.stats()["server_pid"] == os.getpid()
        assert ids(feed) == [0, 1, 2, 3, 4]


def test_other_options_than_the_servers_are_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    with (
        feedline.share(numbers, "train", batch_size=7, linger_secs=0.1),
        caplog.at_level(logging.WARNING, "feedline"),
    ):
        feedline.share(numbers, "train", batch_size=5, linger_secs=0.1).close()
        assert not caplog.messages
        feedline.share(numbers, "train", history=0.5, linger_secs=0.1).close()
    assert ["history=0.5" in message for message in caplog.messages] == [True]


def test_the_server_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(key, "1")
    monkeypatch.setenv("RANKINE", "kept")
    with feedline.share(environment, "train", linger_secs=0.1) as feed:
        assert next(iter(feed)) == {"of ranks": "", "other": "kept"}


def environment() -> list[Any]:
    keys = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
    found = ", ".join(key for key in keys if key in os.environ)
    return [{"of ranks": found, "other": os.environ.get("RANKINE", "")}]


def test_off_gives_the_plain_loader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "off")
    loader: Any = Anew(numbers)
    assert feedline.share(lambda: loader, "train", linger_secs=1.0) is loader
    assert not caplog.messages
    assert feedline.share(lambda: loader, "train", batch_size=5, transform=print) is loader
    assert "knows nothing of batch_size=5, transform=" in caplog.text
    assert not list(folder.iterdir())


def test_local_serves_this_process_alone(
    monkeypatch: pytest.MonkeyPatch, folder: Path, start: Start
) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "local")
    with (
        feedline.share(numbers, "train", batch_size=7, history=1.0) as feed,
        feedline.share(numbers, "train", batch_size=5) as another,
    ):
        assert feed.stats()["server_pid"] == os.getpid()
        assert (ids(feed), ids(another)) == (list(range(SAMPLES)),) * 2
        assert feed.state_dict()["feed"] == "train"
        with pytest.raises(feedline.FeedNotFoundError):
            feedline.attach("train", timeout_secs=0.0)
    eventually(lambda: not feedline.feeds())


def test_a_local_server_goes_with_its_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "local")
    feed = feedline.share(numbers, "train")
    assert feedline.feeds()
    del feed
    eventually(lambda: not feedline.feeds())


def test_another_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "of")
    with pytest.raises(feedline.FeedValueError, match='FEEDLINE_MODE="of" is not one of'):
        feedline.share(numbers, "train")


def test_a_race_with_kills(folder: Path) -> None:
    command = [sys.executable, "-m", "chaos.race", "--rounds", "6", "--jobs", "20"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
