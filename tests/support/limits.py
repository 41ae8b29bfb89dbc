"""Limits: control groups with little memory or CPU time, and a slow disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.waiting import eventually

MB = 1 << 20
_THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with this much memory, which is empty again at the end."""
    with _group(
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", f"{limit_bytes}"),
        ("/sys/fs/cgroup", "memory.max", f"{limit_bytes}"),
    ) as path:
        yield path


@contextmanager
def cpu_group(cores: float) -> Iterator[Path]:
    """A control group that may keep so many cores busy, which is empty again at the end."""
    quota_us = round(100_000 * cores)
    with _group(
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", f"{quota_us}"),
        ("/sys/fs/cgroup", "cpu.max", f"{quota_us} 100000"),
    ) as path:
        yield path


@contextmanager
def _group(*ways: tuple[str, str, str]) -> Iterator[Path]:
    """Make one in the older interface, or in the newer."""
    for root, file, limit in ways:
        path = Path(root) / f"feedline-test-{os.getpid()}"
        try:
            path.mkdir()
            (path / file).write_text(limit)
            break
        except OSError:
            if path.is_dir():
                path.rmdir()
    else:
        pytest.skip("no such control group can be made here")
    yield path
    eventually(lambda: not (path / "cgroup.procs").read_text().split())
    path.rmdir()


def enter(group: Path | str, pid: int | None = None) -> None:
    """Take a process into a control group; this one, if none is named."""
    (Path(group) / "cgroup.procs").write_text(str(pid or os.getpid()))


@contextmanager
def slow_disk(folder: Path, size_bytes: int, bytes_per_sec: int) -> Iterator[Path]:
    """A disk that takes no more than so much in a second, and whose writers soon wait for it."""
    if os.geteuid() != 0 or not _THROTTLE.exists() or not shutil.which("mkfs.ext4"):
        pytest.skip("no slow disk can be made here")
    image, path = folder / "image", folder / "disk"
    path.mkdir()
    with ExitStack() as undo:
        image.touch()
        os.truncate(image, size_bytes)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
        device = _run("losetup", "--find", "--show", str(image))
        undo.callback(_run, "losetup", "--detach", device)
        number = Path("/sys/block", Path(device).name, "dev").read_text().strip()
        waiting = Path("/sys/class/bdi", number)
        _THROTTLE.write_text(f"{number} {bytes_per_sec}")
        undo.callback(_THROTTLE.write_text, f"{number} 0")
        for file, value, before in (("strict_limit", "1", "0"), ("max_ratio", "1", "100")):
            (waiting / file).write_text(value)
            undo.callback((waiting / file).write_text, before)
        _run("mount", device, str(path))
        undo.callback(_run, "umount", str(path))
        (waiting / "max_bytes").write_text(str(bytes_per_sec))
        yield path


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()
