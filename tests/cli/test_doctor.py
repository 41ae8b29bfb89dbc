"""`feedline doctor`: green here, and red with a way out where something is missing."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Start
from support import roles
from support.limits import MB, memory_group
from support.users import needs_root

TIMEOUT_SECS = 50.0

Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a torch that can't be imported before the real one, which takes seconds."""
    return torch_that(tmp_path, monkeypatch, 'raise ImportError("not today")')


def torch_that(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> Path:
    (folder / "torch.py").write_text(does)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


def run(
    *args: str, prefix: tuple[str, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-m", "feedline", "doctor", *args],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
        check=False,
        **options,
    )


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What was found, by name; of several with one name, the last."""
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] == (done.returncode == 0)
    found = {check["name"]: check for check in document["checks"]}
    for check in found.values():
        assert (check["level"] == "ok") == (check["what_to_do"] is None), check
    return found


def test_green_here() -> None:
    done = run("--json", "--timeout-secs", "45")
    found = checks(done)
    assert done.returncode == 0, done.stdout
    for name in ("round trip", "trip to NumPy", "trip to torch"):
        assert found[name]["level"] == "ok", found[name]
        assert found[name]["numbers"]["samples"] == 512
        assert found[name]["numbers"]["bytes_per_sec"] > 0
    for name in ("sealed memory", "mirrored mapping", "futex", "socket folder", "memory", "cores"):
        assert found[name]["level"] == "ok", found[name]
    assert found["version"]["numbers"]["feedline"]
    assert "GPUs" in found


def test_a_line_for_each_check_and_a_second_one_where_something_can_be_done(quick: Path) -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("note  torch"))
    assert "not today" in lines[at]
    assert lines[at + 1].startswith(" " * 26 + "try it alone: ")
    assert all(line.startswith(("ok    ", "note  ", " " * 26)) for line in lines)
    assert "\x1b" not in done.stdout
    assert done.stderr.startswith("feeds work here, with ")


@pytest.mark.parametrize(
    ("does", "says"),
    [("import os; os.abort()", "signal: 6"), ("import time; time.sleep(100)", "no answer in time")],
    ids=["crashes", "hangs"],
)
def test_a_torch_that_does_not_come_back_is_a_note(
    does: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_that(tmp_path, monkeypatch, does)
    # Enough for everything before it, on a busy machine.
    done = run("--json", "--timeout-secs", "15" if "sleep" in does else "30")
    found = checks(done)
    assert found["torch"]["level"] == "note", found["torch"]
    assert says in found["torch"]["found"]
    assert done.returncode == 0, done.stdout


def test_a_folder_that_others_may_write_to(quick: Path, folder: Path) -> None:
    folder.chmod(0o777)
    done = run("--json")
    found = checks(done)
    assert done.returncode == 1
    assert found["socket folder"]["level"] == "bad"
    assert "mode 777" in found["socket folder"]["found"]
    assert "export FEEDLINE_DIR=" in found["socket folder"]["what_to_do"]
    assert found["round trip"]["level"] == "note"
    assert found["NumPy"]["level"] == "ok"


@needs_root
def test_a_folder_of_somebody_else(quick: Path, folder: Path) -> None:
    os.chown(folder, 54_321, 54_321)
    done = run("--json")
    found = checks(done)
    os.chown(folder, 0, 0)
    assert done.returncode == 1
    assert "belongs to user 54321" in found["socket folder"]["found"]
    assert "export FEEDLINE_DIR=" in found["socket folder"]["what_to_do"]


def test_a_folder_with_too_long_a_path(
    quick: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEEDLINE_DIR", str(folder / ("x" * 90)))
    done = run("--json")
    found = checks(done)
    assert done.returncode == 1
    assert "bytes long" in found["socket folder"]["found"]
    assert "export FEEDLINE_DIR=" in found["socket folder"]["what_to_do"]


def test_few_descriptors(quick: Path) -> None:
    done = run("--json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16)))
    found = checks(done)
    assert done.returncode == 1
    assert found["descriptors"]["level"] == "bad"
    assert "nofile=4096" in found["descriptors"]["what_to_do"]


def test_a_small_address_space(quick: Path) -> None:
    """Python is there already when the limit is set: what is judged is what is left."""
    code = """
import resource, sys
import feedline.__main__
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
sys.argv[1:] = ["doctor", "--json"]
sys.exit(feedline.__main__.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
        check=False,
    )
    found = checks(done)
    assert done.returncode == 1
    assert found["memory"]["level"] == "bad"
    assert found["address space"]["level"] == "bad"
    assert "ulimit -v unlimited" in found["address space"]["what_to_do"]


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with some memory, but not much."""
    with memory_group(600 * MB) as group:
        yield group


def test_a_control_group(quick: Path, group: Path) -> None:
    enter = ("sh", "-c", f'echo $$ >"{group}/cgroup.procs"; exec "$@"', "sh")
    done = run("--json", prefix=enter)
    found = checks(done)
    assert found["memory limit"]["numbers"]["limit_bytes"] == 600 * MB
    assert "of 629.1 MB left" in found["memory limit"]["found"]
    assert found["memory"]["level"] == "note"
    assert "--ring" in found["memory"]["what_to_do"]
    assert done.returncode == 0, done.stdout


def test_in_namespaces_of_its_own(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    alone = ("unshare", "-rn")
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user namespace can be made here")
    done = run("--json", prefix=alone)
    found = checks(done)
    assert done.returncode == 0, done.stdout
    assert found["trip to NumPy"]["level"] == "ok"


def test_a_feed_that_does_not_answer_and_one_that_was_killed(
    quick: Path, start: Start, folder: Path
) -> None:
    silent = start(roles.serve, name="silent", loader_args=[100, 10])
    killed = start(roles.serve, name="killed", loader_args=[100, 10])
    for server in (silent, killed):
        server.expect("ready")
    killed.kill()
    silent.stop()
    done = run("--json")
    silent.resume()
    found = checks(done)
    assert done.returncode == 0, done.stdout
    assert found["feed"]["level"] == "note"
    assert f"silent (pid {silent.pid}) does not answer" in found["feed"]["found"]
    assert f"kill -CONT {silent.pid}" in found["feed"]["what_to_do"]
    # Every process that reads the folder removes what a killed server left.
    assert "leftovers" not in found
    assert not list(folder.glob("killed.*"))
