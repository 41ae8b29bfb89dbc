"""Data-parallel training under torchrun: real ranks, gloo, DistributedDataParallel."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import feedline
from conftest import Start
from support import roles
from support.loaders import EPOCH
from support.ranks import shares, steps_of
from support.waiting import eventually

pytestmark = pytest.mark.timeout(240, method="thread")

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "ddp_rank.py"
EXAMPLE = HERE.parents[1] / "examples" / "with_torchrun.py"
SAMPLES, BATCH, WORLD = 650, 16, 2

Torchrun = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def torchrun(folder: Path) -> Iterator[Torchrun]:
    """Start a script as the ranks of a job; all of it is gone at the end."""
    jobs: list[subprocess.Popen[str]] = []

    def run(*arguments: str, script: Path = SCRIPT, restarts: int = 0) -> subprocess.Popen[str]:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        options = [f"--nproc-per-node={WORLD}", f"--max-restarts={restarts}"]
        job = subprocess.Popen(
            [*launcher, *options, str(script), *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            process_group=0,
        )
        jobs.append(job)
        return job

    yield run
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def reports_of(job: subprocess.Popen[str]) -> list[dict[str, Any]]:
    output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def check_epochs(reports: list[dict[str, Any]], epochs: list[int]) -> None:
    """Whether the ranks got their shares of these epochs, and trained to the same weights."""
    for epoch in epochs:
        wanted = shares(epoch, steps_of(SAMPLES, BATCH, WORLD), WORLD)
        read = {one["rank"]: one for one in reports if one.get("epoch") == epoch}
        assert sorted(read) == list(range(WORLD)), reports
        for rank, reading in enumerate(wanted):
            assert read[rank]["keys"] == reading.keys
            assert read[rank]["sizes"] == reading.sizes
            assert read[rank]["len"] in (None, len(reading.sizes))
        assert read[0]["weights"] == read[1]["weights"]


def test_ranks_train_together_beside_other_jobs(start: Start, torchrun: Torchrun) -> None:
    server = start(roles.serve, loader_args=[SAMPLES, 20], wait_for=3, ring=200, epochs=3)
    server.expect("ready")
    job = torchrun("3")
    # It sees all, at its own batch size.
    other = start(roles.consume, batch_size=50, epochs=3)
    check_epochs(reports_of(job), [0, 1, 2])
    other.expect("attached")
    for epoch in range(3):
        keys = other.expect("epoch")["keys"]
        assert keys == list(range(epoch * EPOCH, epoch * EPOCH + SAMPLES))


def test_ranks_that_start_late_read_the_same_epochs(start: Start, torchrun: Torchrun) -> None:
    """Rank 1 comes a second after rank 0, into a feed that is in full use."""
    server = start(roles.serve, loader_args=[SAMPLES, 20], ring=200, history=0.0)
    server.expect("ready")
    other = start(roles.follow, batch_size=50)
    other.expect("attached")
    reports = reports_of(torchrun("2", "late"))
    epochs = sorted({one["epoch"] for one in reports if "epoch" in one})
    assert len(epochs) == 2
    check_epochs(reports, epochs)
    other.kill()


def test_a_job_that_torchrun_starts_again_reads_whole_epochs(
    start: Start, torchrun: Torchrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    server = start(roles.serve, loader_args=[SAMPLES, 20], ring=200, history=0.0)
    server.expect("ready")
    reports = reports_of(torchrun("2", "dies", restarts=1))
    assert [one["rank"] for one in reports if one["event"] == "dies"] == [1]
    epochs = sorted({one["epoch"] for one in reports if "epoch" in one})
    assert len(epochs) == 2
    check_epochs(reports, epochs)
    eventually(lambda: not server.ask("stats")["stats"]["consumers"])


def test_the_example(torchrun: Torchrun) -> None:
    # What `serve_imagefolder.py` serves, as far as a job can tell.
    pictures: Any = [(torch.zeros(3, 64, 64, dtype=torch.uint8), n % 2) for n in range(400)]
    with feedline.Server(DataLoader(pictures, batch_size=32), "images"):
        job = torchrun("32", script=EXAMPLE)
        output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    lines = re.findall(r"epoch (\d), rank \d: (\d+) samples in (\d+) steps", output)
    for epoch in range(3):
        ranks = [(int(samples), steps) for number, samples, steps in lines if number == str(epoch)]
        assert [steps for _, steps in ranks] == ["7", "7"], output
        assert sum(samples for samples, _ in ranks) == 400, output
