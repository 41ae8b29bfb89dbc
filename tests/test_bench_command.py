"""`feedline bench`: what it measures, what it says of it, and what can't be measured."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedline._cli.bench.batches import samples_in
from feedline._cli.bench.parts import Part, Plan, TooSlowError, hangs, loader_each
from feedline._cli.bench.verdict import disturbance, judge, saving
from feedline._fleet.children import Step
from feedline._fleet.screen import Progress
from processes import eventually, processes_with

PATIENCE_SECS = 100.0

pytestmark = pytest.mark.timeout(1.5 * PATIENCE_SECS, method="thread")

LOADERS = '''
import multiprocessing, time
import numpy as np

def burn(index):
    began = time.process_time()
    while time.process_time() - began < 0.02:
        pass
    return np.full((8, 4), index)

def costly():
    """A worker prepares; this process hands on."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        yield from pool.imap(burn, range(10_000))

def trivial():
    return [np.zeros((32, 10))] * 50

def generator(batches=40):
    print("what a loader prints is no answer")
    for _ in range(batches):
        time.sleep(0.002)
        yield np.zeros((8, 4))

def one_shot():
    return iter([np.zeros((4, 4))] * 30)

def strings():
    return [{"text": ["a", "b"], "x": np.zeros((2, 3))}] * 40

def ragged():
    return [np.zeros((4, length)) for length in (3, 5, 7)] * 20

def objects():
    return [{"when": [complex(1, 2), {1, 2}], "x": np.zeros((2, 3))}] * 40

def empty():
    return []

def raises():
    yield np.zeros((4, 4))
    raise ValueError("sample 4 is broken")

def hangs():
    yield np.zeros((4, 4))
    time.sleep(1000)

def stuck():
    """For a while all is well."""
    began = time.monotonic()
    while time.monotonic() < began + 0.4:
        time.sleep(0.005)
        yield np.zeros((4, 4))
    time.sleep(1000)

def never():
    time.sleep(1000)
    yield np.zeros((4, 4))
'''


@dataclass
class Bench:
    """Runs the command in a folder with loaders in it."""

    folder: Path
    data: Path

    def start(self, loader: str, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "feedline", "bench", f"{self.data}:{loader}", *args],
            # All that it makes is in `folder`, which must be empty again at the end.
            env={**os.environ, "TMPDIR": str(self.folder)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, loader: str, *args: str) -> tuple[int, str, str]:
        process = self.start(loader, *args)
        out, err = process.communicate(timeout=PATIENCE_SECS)
        return process.returncode, out, err

    def json(self, loader: str, *args: str) -> dict[str, Any]:
        code, out, err = self.run(loader, "--json", *args)
        assert (code, err) == (0, "")
        document: dict[str, Any] = json.loads(out)
        return document


@pytest.fixture
def bench(folder: Path, tmp_path: Path) -> Bench:
    data = tmp_path / "data.py"
    data.write_text(LOADERS)
    return Bench(folder, data)


def test_a_costly_loader(bench: Bench) -> None:
    found = bench.json("costly", "--jobs", "3", "--seconds", "2")
    # By CPU time, which holds on a busy machine too: a third, and what handing on costs.
    assert found["cpu_ratio"] < 0.6, found
    # Faster too, if there are fewer cores than jobs.
    assert found["verdict"]["kind"] in ("faster", "less-cpu"), found
    assert [found[part]["processes"] for part in ("alone", "loader_each", "one_feed")] == [2, 6, 5]
    for part in ("alone", "loader_each", "one_feed"):
        assert found[part]["cpu_secs_per_1000_samples"] > 0
        assert found[part]["memory_bytes"] > 1e6
        assert len(found[part]["samples_per_sec"]) == found[part]["jobs"]
    # 20 ms of a core for 8 samples.
    assert found["alone"]["cpu_secs_per_1000_samples"] > 2.0


def test_a_trivial_loader(bench: Bench) -> None:
    code, out, err = bench.run(
        "trivial", "--jobs", "2", "--seconds", "0.5", "--batch-size", "10", "--price-per-hour", "3"
    )
    assert (code, err) == (0, "")
    for part in ("2 jobs, one feed", "CPU-seconds per 1,000 samples", "Nothing to gain: loading"):
        assert part in out
    assert "No money to save" in out or "1,000,000 samples cost" in out
    assert "10 samples at a time on the feed: jobs that compute too gain this much at most" in out


@pytest.mark.parametrize("loader", ["generator", "one_shot", "strings", "ragged", "objects"])
def test_odd_loaders(bench: Bench, loader: str) -> None:
    found = bench.json(loader, "--jobs", "1", "--seconds", "0.3")
    assert found["one_feed"]["samples_per_sec_mean"] > 0


@pytest.mark.parametrize(
    ("loader", "args", "code", "says"),
    [
        ("empty", [], 1, ["the loader yielded no batch", "at least one batch"]),
        ("raises", [], 1, ["the loader raised ValueError", "sample 4 is broken", "data.py"]),
        ("generator", ["--arg", "size=3"], 2, ["has no parameter size"]),
        ("nothing", [], 2, ['has no "nothing"', "costly"]),
        ("strings", ["--batch-size", "3"], 1, ['batch["text"]', "leave out --batch-size"]),
    ],
)
def test_what_cannot_be_measured(
    bench: Bench, loader: str, args: list[str], code: int, says: list[str]
) -> None:
    found, out, err = bench.run(loader, "--jobs", "1", "--seconds", "0.2", *args)
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert "\n  " in err
    assert "feedline/_cli" not in err
    for part in says:
        assert part in err


@pytest.mark.parametrize("loader", ["never", "hangs"])
def test_a_loader_that_is_too_slow(
    bench: Bench, loader: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(f"{bench.data}:{loader}", [], None, secs=0.2, start_secs=3.0)
    says = "not every job had a batch after 3 s" if loader == "never" else "fewer than two batches"
    progress = Progress({}, plain=False)
    with pytest.raises(TooSlowError, match=says) as error:
        loader_each("one job alone", 1, plan, tmp_path, progress)
    assert "\n  " in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_a_loader_that_hangs_gets_no_recommendation(bench: Bench) -> None:
    code, out, err = bench.run("stuck", "--jobs", "1", "--seconds", "4")
    assert (code, out) == (1, "")
    assert re.match(r"error: one job alone: a job got no batch for the last [\d.]+ s: ", err), err
    assert "measure longer: --seconds 40" in err


def test_what_counts_as_hanging() -> None:
    def after(*moments: float) -> bool:
        return hangs([Step(at, 1, 1) for at in moments], 10.0, 14.0)

    assert after(9.9, 10.0, 10.1)
    assert after(9.6, 9.7)
    # One that is slow, or rests between epochs, or has only begun to.
    assert not after(9.0, 10.5, 12.0)
    assert not after(9.9, 10.0, 11.2, 11.3)
    assert not after(11.9, 12.0, 12.1)
    assert not after(10.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_while_it_measures_it_takes_all_processes_along(
    bench: Bench, folder: Path, number: signal.Signals, reap: Callable[[], None]
) -> None:
    process = bench.start("costly", "--jobs", "2", "--seconds", "600")
    eventually(lambda: len(processes_with(str(folder))) >= 3)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECS)
    assert out == ""
    if number == signal.SIGKILL:
        # The job notices at its next report; its worker is Python's own to end.
        eventually(
            lambda: not any("bench.job" in _command(pid) for pid in processes_with(str(folder)))
        )
        reap()
        for left in sorted(folder.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()
    else:
        assert (process.returncode, err) == (130, "stopped: all jobs ended, nothing left behind\n")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_samples_of_a_batch() -> None:
    rows = np.zeros((6, 2))
    nested = [rows, [rows, 1], {"a": {"b": rows}}, (["x"] * 6, rows), [[1.0] * 6], list(range(6))]
    assert [samples_in(batch) for batch in nested] == [6] * len(nested)
    shapeless: list[Any] = ["text", None, 5, [], {}, np.float32(1)]
    assert [samples_in(batch) for batch in shapeless] == [1] * len(shapeless)


def part(rate: float, cpu_secs_per_1000: float, jobs: int = 4) -> Part:
    cpu_secs = rate * jobs * cpu_secs_per_1000 / 1000
    return Part(jobs, [rate] * jobs, 1.0, cpu_secs, 10**9, 9, all_cores=8, other_cores=0.0)


def test_what_the_numbers_mean() -> None:
    each = part(100, 10.0)
    alone = part(390, 9.0, jobs=1)
    faster = judge(alone, each, part(400, 2.3))
    assert faster.kind == "faster"
    assert (
        faster.text == "4 jobs need 23 % of the CPU they need now, and each can load 4.0x as fast."
    )
    assert judge(alone, each, part(100, 2.3)).kind == "less-cpu"
    assert judge(alone, each, part(102, 9.8)).kind == "nothing"
    # Jobs that keep all cores busy with handing on what costs nothing ...
    busy = replace(part(50_000, 0.01), all_cores=2)
    cheap = judge(part(90_000, 0.01, jobs=1), busy, part(90_000, 0.005))
    assert cheap.kind == "nothing"
    # ... and jobs that wait for one disk.
    waiting = judge(part(3200, 0.002, jobs=1), part(800, 0.002), part(3200, 0.001))
    assert waiting.kind == "faster"
    assert "load 4.0x as fast each: they share what they wait for" in waiting.text
    assert "1.0 % of a core for each 1,000 samples/s" in cheap.text


def test_money() -> None:
    # 400 and 1,600 samples/s of all jobs, on a machine for 3.60 an hour: 0.001 a second.
    saved = saving(part(100, 10.0), part(400, 2.5), 3.6)
    assert saved.per_million_each == pytest.approx(2.5)
    assert saved.per_million_shared == pytest.approx(0.625)
    assert saved.per_hour == pytest.approx(2.7)
    assert "cost 0.625 instead of 2.5: that saves up to 2.70 in each hour" in saved.text()
    nothing = saving(part(100, 10.0), part(80, 12.0), 3.6)
    assert nothing.per_hour == 0
    assert "No money to save" in nothing.text()


def test_others_on_the_machine() -> None:
    quiet = part(100, 10.0)
    assert disturbance({"a": quiet}) is None
    # There are cores left for both.
    assert disturbance({"a": replace(quiet, other_cores=1.0)}) is None
    note = disturbance({"a": replace(quiet, other_cores=4.0)})
    assert note is not None
    assert "4.0 of the machine's 8 cores" in note
