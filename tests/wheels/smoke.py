"""A smoke test of an installed Feedline, for its environment's Python, outside of the clone.

    python smoke.py            # in an environment without torch
    python smoke.py --torch    # in one with torch

It needs nothing but the standard library and what Feedline itself needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import feedline

SAMPLES = 64
# Everything here takes seconds: a process that needs this long hangs.
WATCHDOG_SECS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true", help="share a DataLoader, too")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job()
        return
    check_installation()
    assert (importlib.util.find_spec("torch") is not None) == options.torch
    check_command_line()
    check_server()
    if options.torch:
        check_share()
    print(f"feedline {feedline.__version__} works {'with' if options.torch else 'without'} torch")


def check_installation() -> None:
    """The package under test is the installed one, and nothing here could have built it."""
    environment = Path(sys.prefix).resolve()
    for module in (feedline, feedline._core):
        file = Path(str(module.__file__)).resolve()
        assert file.is_relative_to(environment), f"{file} is not in {environment}"
    assert shutil.which("cargo") is None


def check_command_line() -> None:
    assert feedline.__version__ in command("--version")
    assert "serve" in command("--help")
    assert "round trip" in command("doctor")


def check_server() -> None:
    """A consumer gets every sample, in order, at its own batch size; `ls` shows the feed."""
    loader = list(np.arange(SAMPLES).reshape(-1, 8))
    assert feeds() == []
    with feedline.Server(loader, "smoke", epochs=1):
        assert feeds() == ["smoke"]
        with feedline.attach("smoke", batch_size=5, format="numpy") as feed:
            batches = list(feed)
    assert [len(batch) for batch in batches] == [5] * 12 + [4]
    assert np.concatenate(batches).tolist() == list(range(SAMPLES))
    assert feeds() == []


def check_share() -> None:
    """Two jobs get the same shuffled epoch from one server, which ends after them."""
    arguments = [sys.executable, __file__, "--job"]
    jobs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        first, second = (json.loads(job.communicate(timeout=WATCHDOG_SECS)[0]) for job in jobs)
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [0, 0]
    assert first == second
    assert sorted(first["samples"]) == list(range(SAMPLES))
    wait_for_end(first["server"])
    assert feeds() == []


def job() -> None:
    """One of the jobs that share a DataLoader: prints what it got, and from which process."""
    import torch
    from torch.utils.data import DataLoader

    feed = feedline.share(
        lambda: DataLoader(range(SAMPLES), batch_size=8, shuffle=True),  # type: ignore[arg-type]
        "smoke",
        batch_size=5,
        wait_for=2,
        linger_secs=0,
    )
    assert isinstance(feed, DataLoader)
    (server,) = feedline.feeds()
    samples = torch.cat(list(feed)).tolist()
    print(json.dumps({"server": server.pid, "samples": samples}))


def command(*arguments: str) -> str:
    """What the console script beside this Python prints."""
    return subprocess.run(
        [Path(sys.prefix, "bin", "feedline"), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=WATCHDOG_SECS,
        check=True,
    ).stdout


def feeds() -> list[str]:
    return [feed["name"] for feed in json.loads(command("ls", "--json"))]


def wait_for_end(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([process], [], [], WATCHDOG_SECS)
    assert ended, f"the server, process {pid}, outlives its jobs"


if __name__ == "__main__":
    main()
