"""A full disk, a small control group, a small address space: an error that names the sizes.

Nothing is killed by the kernel, nothing runs into SIGBUS, and who fits goes on.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support.child import say
from support.limits import MB, enter, memory_group
from support.loaders import Numbered
from support.reading import expected, read

DISK_MB = 8
GROUP_MB = 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield path
        assert not list(path.iterdir()), "files left in history_dir"
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def small_group() -> Iterator[Path]:
    with memory_group(GROUP_MB * MB) as group:
        yield group


def test_a_disk_that_is_too_small(small_disk: Path) -> None:
    server = feedline.Server(
        Numbered(1000, 10, width=4096), "train", history="64MB", history_dir=small_disk
    )
    server.start()
    with pytest.raises(feedline.FeedMemoryError, match=r"82\.0 MB.* 8\.4 MB are left") as error:
        server.wait()
    assert str(small_disk) in str(error.value)
    server.stop()


def test_a_disk_that_fills_up_later(small_disk: Path) -> None:
    """Its blocks were taken at the start: the feed goes on, and only growing is refused."""
    loader = Numbered(2000, 10, width=1024)
    with feedline.Server(
        loader, "train", ring=400, history=0.5, history_dir=small_disk, samples=2000
    ):
        feed = feedline.attach("train", batch_size=32)
        iterator = iter(feed)
        first = read(iterator, limit=2)
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(2 * DISK_MB * MB))
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(read, iterator)
            with (
                feedline.attach("train", batch_size=1500) as greedy,
                pytest.raises(feedline.BatchSizeError, match="1500"),
            ):
                next(iter(greedy))
            assert first.keys + rest.result().keys == list(range(2000))
            assert rest.result().exact
        ballast.unlink()
        # There is space again: a consumer that asks now is served.
        with feedline.attach("train", batch_size=500) as larger, ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read, feed)
            got = read(larger)
            assert (got.exact, len(got.keys)) == (True, 2000)
            assert reading.result().exact
        feed.close()


def serve_in_group(group: str, **options: Any) -> None:
    enter(group)
    server = feedline.Server(Numbered(1000, 10, width=4096), "train", epochs=1, **options)
    server.start()
    say("ready")
    server.wait()
    say("done")


def test_a_control_group_that_is_too_small(start: Start, small_group: Path) -> None:
    for options in ({"ring": "500MB"}, {"history": "500MB"}):
        server = start(serve_in_group, group=str(small_group), **options)
        server.expect("ready")
        server.expect_error(feedline.FeedMemoryError, "MB", "memory are left")
    server = start(serve_in_group, group=str(small_group), ring="8MB")
    server.expect("ready")
    with feedline.attach("train", batch_size=32) as feed:
        assert read(feed) == expected(0, 1000, 32)
    server.expect("done")


def serve_in_address_space(spare_mb: int, **options: Any) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + spare_mb * MB, used + spare_mb * MB))
    server = feedline.Server(Numbered(1000, 10, width=4096), "train", epochs=1, **options)
    server.start()
    say("ready")
    server.wait()
    say("done")


def test_an_address_space_that_is_too_small(start: Start) -> None:
    server = start(serve_in_address_space, spare_mb=300, ring="500MB")
    server.expect("ready")
    server.expect_error(feedline.FeedMemoryError, "500.6 MB", "memory are left")
    server = start(serve_in_address_space, spare_mb=300, ring="8MB")
    server.expect("ready")
    with feedline.attach("train", batch_size=32) as feed:
        assert read(feed) == expected(0, 1000, 32)
    server.expect("done")
