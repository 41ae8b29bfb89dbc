"""One script, started many times: the first one starts the server, all attach, the last leaves."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from child import hear, say
from conftest import Start
from processes import eventually, processes_with

SAMPLES = 60
LOCK = threading.Lock()

pytestmark = pytest.mark.timeout(120, method="thread")


@pytest.fixture(autouse=True)
def servers_leave(folder: Path) -> Iterator[None]:
    """At the end servers leave by themselves; what was printed, or failed, stays."""
    yield
    eventually(lambda: not processes_with(str(folder)))
    for path in folder.iterdir():
        path.unlink()


def run_script(path: Path, text: str, copies: int = 1, args: tuple[str, ...] = ()) -> list[Any]:
    """Run a script several times at once, and give the JSON that each one prints last."""
    path.write_text(textwrap.dedent(text))
    jobs = [
        subprocess.Popen([sys.executable, str(path), *args], text=True, stdout=subprocess.PIPE)
        for _ in range(copies)
    ]
    outputs = [job.communicate(timeout=90)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * copies, outputs
    return [json.loads(output.splitlines()[-1]) for output in outputs]


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


def numbers() -> list[Any]:
    return [np.arange(first, first + 12) for first in range(0, SAMPLES, 12)]


def ids(feed: feedline.Feed) -> list[int]:
    return [int(i) for batch in feed for i in batch]


def test_the_server_is_nobodys_child_and_leaves_after_the_last_consumer(folder: Path) -> None:
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.3) as feed:
        pid = feed.stats()["server_pid"]
        assert ids(feed) == list(range(SAMPLES))
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert parent != os.getpid()
        assert os.getsid(pid) != os.getsid(0)
        time.sleep(1.0)  # somebody is attached for longer than it lingers
        assert [one.pid for one in feedline.feeds()] == [pid]
    eventually(lambda: not feedline.feeds())
    eventually(lambda: not list(folder.iterdir()))
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1) as again:
        assert again.stats()["server_pid"] != pid
        assert ids(again) == list(range(SAMPLES))


def slow_to_yield() -> Iterator[Any]:
    time.sleep(6.0)
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
    eventually(lambda: [path.name for path in folder.iterdir()] == ["train.log"])


def test_ctrl_c_in_mid_epoch_loses_nothing() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with feedline.share(paced, "train", batch_size=4, linger_secs=0.1) as feed:
        batches = iter(feed)
        found = [int(i) for i in next(batches)]
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                found += [int(i) for i in next(batches)]
        finally:
            signal.signal(signal.SIGALRM, before)
        found += [int(i) for batch in batches for i in batch]
        assert found == list(range(12))


def paced() -> Iterator[Any]:
    yield np.arange(4)
    time.sleep(2.0)
    yield np.arange(4, 12)


def test_a_loader_that_hangs_does_not_keep_a_server_that_was_told_to_stop(folder: Path) -> None:
    with feedline.share(hangs, "train", linger_secs=0.1) as feed:
        next(iter(feed))
        os.kill(feed.stats()["server_pid"], signal.SIGTERM)
    eventually(lambda: not processes_with(str(folder)))


def hangs() -> Iterator[Any]:
    yield np.arange(4)
    threading.Event().wait()


def forks_and_waits() -> list[Any]:
    if os.fork() == 0:
        time.sleep(600)
    print("making the loader")
    time.sleep(600)
    return numbers()


def test_children_of_a_loader_do_not_hold_the_lock(folder: Path) -> None:
    with pytest.raises(feedline.StalledError):
        feedline.share(forks_and_waits, "train", timeout_secs=2.0, linger_secs=0.1)
    eventually(lambda: is_making(folder))
    pids = processes_with(str(folder))
    # The one that makes the loader, and not its child.
    parents = {
        int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in pids
    }
    (host,) = set(pids) & parents
    os.kill(host, signal.SIGKILL)
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1, timeout_secs=20) as feed:
        assert ids(feed) == list(range(SAMPLES))
    os.kill(next(pid for pid in pids if pid != host), signal.SIGKILL)


class NoSuchDataError(Exception):
    pass


def fail() -> list[Any]:
    print("before it fails")
    time.sleep(0.5)
    raise NoSuchDataError("the disk is not mounted")


def share_what_fails() -> None:
    feedline.share(fail, "train", linger_secs=0.1)


def test_what_make_loader_raises_is_raised_by_all(start: Start, folder: Path) -> None:
    jobs = [start(share_what_fails) for _ in range(3)]
    for job in jobs:
        job.expect_error(
            feedline.LoaderError,
            "NoSuchDataError('the disk is not mounted')",
            'raise NoSuchDataError("the disk is not mounted")',
            str(folder / "train.log"),
        )
    assert "before it fails" in (folder / "train.log").read_text()
    # And once it is repaired, all is well again.
    with feedline.share(numbers, "train", batch_size=7, linger_secs=0.1) as feed:
        assert ids(feed) == list(range(SAMPLES))


def fails_late() -> Iterator[Any]:
    yield from numbers()
    raise NoSuchDataError("sample 60 is broken")


def read_what_fails() -> None:
    options: dict[str, Any] = {"batch_size": 7, "ring": 24, "wait_for": 2, "linger_secs": 0.1}
    feed = feedline.share(fails_late, "train", **options)
    found = []
    try:
        for batch in feed:
            found += [int(i) for i in batch]
    finally:
        say("read", ids=found)


def test_what_the_loader_raises_is_raised_by_all(start: Start, folder: Path) -> None:
    jobs = [start(read_what_fails) for _ in range(2)]
    for job in jobs:
        assert job.expect("read")["ids"] == list(range(56))  # the next batch is not whole
        job.expect_error(
            feedline.LoaderError, "sample 60 is broken", "fails_late", str(folder / "train.log")
        )


def follow(reconnect_secs: float) -> None:
    feed = feedline.share(
        numbers, "train", batch_size=7, ring=24, linger_secs=0.2, reconnect_secs=reconnect_secs
    )
    batches = iter(feed)
    found = [int(i) for i in next(batches)]
    say("began", server=feed.stats()["server_pid"])
    hear()
    found += [int(i) for batch in batches for i in batch]
    say("read", ids=found, server=feed.stats()["server_pid"])


def test_a_server_that_was_killed_is_named_with_its_log(start: Start, folder: Path) -> None:
    job = start(follow, reconnect_secs=0.0)
    os.kill(job.expect("began")["server"], signal.SIGKILL)
    eventually(lambda: not feedline.feeds())
    job.tell("go on")
    job.expect_error(feedline.ServerLostError, str(folder / "train.log"))


def test_a_server_that_was_killed_is_started_again(start: Start) -> None:
    jobs = [start(follow, reconnect_secs=30.0) for _ in range(3)]
    servers = {job.expect("began")["server"] for job in jobs}
    assert len(servers) == 1
    os.kill(servers.pop(), signal.SIGKILL)
    for job in jobs:
        job.tell("go on")
    reports = [job.expect("read") for job in jobs]
    assert all(report["ids"] == list(range(SAMPLES)) for report in reports)
    assert len({report["server"] for report in reports}) == 1


def test_a_server_may_be_killed_as_often_as_one_likes() -> None:
    """Only starts that fail are counted, not those that went well."""
    options: dict[str, Any] = {"batch_size": 7, "ring": 24, "reconnect_secs": 30.0}
    with feedline.share(numbers, "train", linger_secs=0.2, **options) as feed:
        batches = iter(feed)
        for _ in range(7):
            next(batches)
            os.kill(feed.stats()["server_pid"], signal.SIGKILL)
        assert len(list(batches)) == 2


SHUFFLED = """
    import json, os, signal, sys, torch
    import feedline
    from torch.utils.data import DataLoader, Dataset

    class Noisy(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            return index, torch.rand(())

    def make_loader():
        own = torch.Generator().manual_seed(3) if sys.argv[1] == "own" else None
        workers = 2 if sys.argv[1] == "workers" else 0
        return DataLoader(Noisy(), 8, shuffle=True, generator=own, num_workers=workers)

    feed = feedline.share(make_loader, "train", batch_size=5, ring=24, linger_secs=0.1,
        wait_for=2, reconnect_secs=60)
    found = []
    for epoch in range(3):
        for number, (ids, noise) in enumerate(feed):
            found += zip(ids.tolist(), noise.tolist())
            if number == 4 and sys.argv[2] == "kills" and epoch != 1:
                os.kill(feed.stats()["server_pid"], signal.SIGKILL)
    print(json.dumps(found))
"""


@pytest.mark.parametrize("generator", ["global", "own", "workers"])
def test_a_shuffled_epoch_goes_on_in_its_order_after_a_crash(
    generator: str, tmp_path: Path
) -> None:
    """One job sees the server killed at its hand, the other only hears of it: both exact, alike."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SHUFFLED))
    jobs = [
        subprocess.Popen([sys.executable, str(script), generator, what], text=True, stdout=-1)
        for what in ("kills", "reads")
    ]
    first, second = (json.loads(job.communicate(timeout=90)[0]) for job in jobs)
    assert first == second
    for epoch in range(3):
        samples = first[64 * epoch : 64 * (epoch + 1)]
        assert sorted(index for index, _ in samples) == list(range(64))
    assert first[:64] != first[64:128]


def test_a_server_told_to_stop_says_so() -> None:
    with feedline.share(numbers, "train", batch_size=7, ring=24) as feed:
        batches = iter(feed)
        next(batches)
        os.kill(feed.stats()["server_pid"], signal.SIGTERM)
        with pytest.raises(feedline.ServerLostError, match="told to stop"):
            list(batches)


def slowly() -> list[Any]:
    print("making the loader")
    time.sleep(2.0)
    return numbers()


def share_slowly() -> None:
    feed = feedline.share(slowly, "train", batch_size=7, linger_secs=0.2)
    say("read", ids=ids(feed))


def is_making(folder: Path) -> bool:
    log = folder / "train.log"
    return log.exists() and "making the loader" in log.read_text()


def test_a_starter_that_is_killed_leaves_a_server_that_is_the_only_one(
    start: Start, folder: Path
) -> None:
    first = start(share_slowly)
    eventually(lambda: is_making(folder))
    others = [start(share_slowly) for _ in range(2)]
    first.kill()
    for other in others:
        assert other.expect("read")["ids"] == list(range(SAMPLES))


def test_a_server_whom_nobody_needs_leaves(start: Start, folder: Path) -> None:
    job = start(share_slowly)
    eventually(lambda: is_making(folder))
    job.kill()
    eventually(lambda: [one.name for one in feedline.feeds()] == ["train"])
    eventually(lambda: not feedline.feeds())


def test_a_loader_that_takes_too_long(folder: Path) -> None:
    with pytest.raises(feedline.StalledError) as raised:
        feedline.share(slowly, "train", timeout_secs=0.5, linger_secs=0.1)
    assert "make_loader has not returned" in str(raised.value)
    assert str(folder / "train.log") in str(raised.value)


def test_a_server_that_dies_again_and_again(folder: Path) -> None:
    with pytest.raises(feedline.FeedlineError, match="died 3 times") as raised:
        feedline.share(lambda: os._exit(3), "train")
    assert str(folder / "train.log") in str(raised.value)


def test_a_server_that_crashes_says_where(folder: Path) -> None:
    with pytest.raises(feedline.FeedlineError, match="died 3 times"):
        feedline.share(lambda: ctypes.string_at(0), "train")
    assert "Segmentation fault" in (folder / "train.log").read_text()


def test_a_module_that_shares_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import feedline, numpy as np\ndef make_loader():\n    return [np.arange(4)]\n"
        "feed = feedline.share(make_loader, 'train', linger_secs=0.1)\n"
    )
    command = [sys.executable, "-c", "import module"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "was called in the server's own process" in done.stderr
    assert "put it into a function" in done.stderr


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


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([1, 2], "train"), TypeError, "share(lambda: loader, ...)"),
        ((numbers, "a/b"), feedline.FeedValueError, "a feed cannot be named"),
        ((lambda: [LOCK], "train"), feedline.FeedValueError, "make_loader"),
        ((lambda: 5, "train"), feedline.LoaderError, "int is not iterable"),
        ((lambda: sys.exit("no"), "train"), feedline.LoaderError, "SystemExit"),
    ],
)
def test_what_cannot_be_shared(
    arguments: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised:
        feedline.share(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"histroy": 1.0}, TypeError, "unexpected keyword argument 'histroy'"),
        ({"lag": "never"}, feedline.FeedValueError, "lag='never' is not one of \"block\""),
        ({"linger_secs": -1}, feedline.FeedValueError, "linger_secs=-1 is not a time to wait"),
        ({"batch_size": 0}, feedline.BatchSizeError, "batch_size=0"),
        ({"_when_missing": print}, TypeError, "unexpected keyword"),
    ],
)
def test_bad_options_start_nothing(
    options: dict[str, Any], kind: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(kind) as raised:
        feedline.share(numbers, "train", **options)
    assert message in str(raised.value)
    assert not list(folder.iterdir())


def test_off_gives_the_plain_loader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "off")
    loader: Any = numbers()
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
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, text=True, capture_output=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
