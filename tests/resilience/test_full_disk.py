"""A full disk under FEEDLINE_DIR: what runs goes on, and what cannot be started says why."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from support.processes import processes_with
from support.share_scripts import SAMPLES, ids, numbers
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread")]


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A FEEDLINE_DIR on a file system of 256 kB."""
    path = tmp_path / "disk"
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    monkeypatch.setenv("FEEDLINE_DIR", str(path))
    yield path
    eventually(lambda: not processes_with(str(path)))
    # A process that has just died may still have a file open.
    unmount = ["umount", str(path)]
    eventually(lambda: not subprocess.run(unmount, capture_output=True, check=False).returncode)


def fill(disk: Path) -> None:
    """Leave not a byte."""
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


class Talkative:
    """Prints in each epoch, more than the disk has; `between` is done before the second one."""

    def __init__(self, between: Callable[[int], None]) -> None:
        self.between = between
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.between(self.epoch)
        print("epoch", self.epoch, "x" * 2000)
        self.epoch += 1
        yield from numbers()


def read_epochs(make_loader: Callable[[], Any], **options: Any) -> None:
    with feedline.share(make_loader, "train", batch_size=7, linger_secs=0.1, **options) as feed:
        for _ in range(4):
            assert ids(feed) == list(range(SAMPLES))


def test_a_feed_goes_on_when_the_disk_is_full(small_disk: Path) -> None:
    disk = str(small_disk)
    metrics, state = small_disk / "metrics.jsonl", small_disk / "state"

    def make_loader() -> Any:
        return Resumable(lambda epoch: fill(Path(disk)) if epoch == 1 else None)

    read_epochs(make_loader, metrics_file=metrics, state_file=state)


class Resumable(Talkative):
    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "size": bytes(1000)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]


@pytest.mark.usefixtures("servers_leave")
def test_a_feed_goes_on_when_its_files_may_not_grow(folder: Path) -> None:
    """The same without a disk of its own: the server may write to no file during two epochs."""

    def limit(epoch: int) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        may_write = epoch not in (1, 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most if may_write else 0, most))

    # Nor could it make the memory of a job that attaches then.
    read_epochs(lambda: Talkative(limit), epochs_ahead=0)
    log = (folder / "train.log").read_text()
    assert "epoch 0" in log
    assert "epoch 1" not in log
    assert "bytes are missing here: File too large]" in log
    assert "epoch 3" in log


def test_what_is_started_on_a_full_disk_says_which(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(feedline.FeedlineError) as raised:
        feedline.share(numbers, "train", timeout_secs=60)
    assert str(small_disk) in str(raised.value)
    assert "No space left on device" in str(raised.value)
    assert "free some space there, or set FEEDLINE_DIR" in str(raised.value)
    (small_disk / "filler").unlink()
    read_epochs(numbers)


def test_a_server_on_a_disk_without_room_for_a_file_says_so(
    tmp_path: Path, small_disk: Path
) -> None:
    subprocess.run(
        ["mount", "-o", "remount,nr_inodes=2", str(small_disk)], check=True, capture_output=True
    )
    (small_disk / "filler").touch()
    with pytest.raises(feedline.FeedlineError) as raised:
        feedline.Server([np.arange(3)], "train").start()
    assert f"cannot write to {small_disk}: No space left on device" in str(raised.value)
    assert "free some space there, or set FEEDLINE_DIR" in str(raised.value)
    with pytest.raises(feedline.FeedlineError, match="No space left on device"):
        feedline.share(numbers, "train", timeout_secs=60)


def test_doctor_sees_it(small_disk: Path) -> None:
    fill(small_disk)
    command = [sys.executable, "-m", "feedline", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert f"{small_disk}: nothing can be written there: No space left on device" in done.stdout
    assert "free some space there, or export FEEDLINE_DIR" in done.stdout
