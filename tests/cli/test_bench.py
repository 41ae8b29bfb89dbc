"""`feedline bench`: what it measures, and what it says. Its errors are in `test_errors`."""

from __future__ import annotations

import io
import json
import math
import os
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
from feedline._cli.bench.measurements import Measurements
from feedline._cli.bench.verdict import Saving, judge, saving, unsteadiness
from feedline._measurement import usage
from feedline._measurement.children import Step
from feedline._measurement.measurement import Measurement, disturbance, hangs
from feedline._measurement.progress import Progress
from feedline._measurement.usage import allowed_cores, busy_cpu_secs, quota_cores
from support.processes import processes_with
from support.waiting import eventually

TIMEOUT_SECS = 100.0

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1.5 * TIMEOUT_SECS, method="thread")]

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

def detection():
    images = [np.zeros((3, side, 8)) for side in range(8, 24)]
    return [(images, [{"boxes": np.zeros((count, 4))} for count in range(1, 17)])] * 20

def warming(mark):
    """Faster in each process than in the one before."""
    with open(mark, "a+") as file:
        file.write("x")
        file.seek(0)
        wait_secs = 0.32 / 4 ** len(file.read())
    while True:
        time.sleep(wait_secs)
        yield np.zeros((8, 4))
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
        out, err = process.communicate(timeout=TIMEOUT_SECS)
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
    assert found["verdict"]["kind"] != "nothing", found
    assert len(found["loader_each"]["samples_per_sec_mean_of_rounds"]) == 2
    assert [found[part]["processes"] for part in ("alone", "loader_each", "one_feed")] == [2, 6, 5]
    for part in ("alone", "loader_each", "one_feed"):
        assert found[part]["cpu_secs_per_1000_samples"] > 0
        assert found[part]["memory_bytes"] > 1e6
        assert len(found[part]["samples_per_sec"]) == found[part]["jobs"]
    # 20 ms of a core for 8 samples.
    assert found["alone"]["cpu_secs_per_1000_samples"] > 2.0


def test_what_gets_faster_with_time_is_no_gain(bench: Bench, tmp_path: Path) -> None:
    mark = f"mark={tmp_path / 'mark'}"
    found = bench.json("warming", "--jobs", "1", "--seconds", "2", "--arg", mark)
    before, after = found["loader_each"]["samples_per_sec_mean_of_rounds"]
    assert after > 1.4 * before, found
    assert before < found["one_feed"]["samples_per_sec_mean"] < after, found
    assert found["verdict"]["kind"] not in ("faster", "slower"), found


def test_a_trivial_loader(bench: Bench) -> None:
    code, out, err = bench.run(
        "trivial", "--jobs", "2", "--seconds", "0.5", "--batch-size", "10", "--price-per-hour", "3"
    )
    assert (code, err) == (0, "")
    for part in ("2 jobs, one feed", "CPU-seconds per 1,000 samples", "Nothing to gain: loading"):
        assert part in out
    assert "\nNo money to save.\n" in out
    assert "\nCounted as 32 samples a batch of the loader.\n" in out
    assert "10 samples at a time on the feed: jobs that compute too gain this much at most" in out


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        *(("generator", 8), ("one_shot", 4), ("strings", 2), ("ragged", 4), ("objects", 2)),
        ("detection", 16),
    ],
)
def test_odd_loaders(bench: Bench, loader: str, samples: int) -> None:
    found = bench.json(loader, "--jobs", "1", "--seconds", "0.3")
    assert found["one_feed"]["samples_per_sec_mean"] > 0
    for part in ("alone", "loader_each", "one_feed"):
        assert found[part]["samples_per_batch"] == samples


def test_what_was_typed_wrongly_has_a_code_of_its_own(bench: Bench) -> None:
    code, out, err = bench.run("generator", "--jobs", "1", "--arg", "size=3")
    assert (code, out) == (2, "")
    assert "has no parameter size" in err


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
    out, err = process.communicate(timeout=TIMEOUT_SECS)
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
    # A size says nothing of the batch.
    assert samples_in(((224, 224), rows)) == 6


def test_samples_of_lists() -> None:
    def images(*sides: int) -> list[Any]:
        return [np.zeros((3, side, side)) for side in sides]

    def boxes(*counts: int) -> list[Any]:
        return [{"boxes": np.zeros((count, 4)), "labels": np.zeros(count)} for count in counts]

    many = range(10, 26)
    assert samples_in([images(*many), boxes(*many)]) == 16
    assert samples_in((tuple(images(*many)), tuple(boxes(*many)))) == 16
    assert samples_in(list(zip(images(*many), boxes(*many), strict=True))) == 16
    assert samples_in(images(*[8] * 16)) == 16
    assert samples_in(boxes(5, 7)) == 2
    assert samples_in([[1, 2, 3], [4, 5], [6]]) == 3
    # Fields and views of as many samples.
    crops = [np.zeros((64, 3, side, side)) for side in (8, 8, 4, 4, 4)]
    assert samples_in((crops, np.zeros(64))) == 64
    assert samples_in([np.zeros((1, 3, 8, 8)), np.zeros(1)]) == 1


def part(rate: float, cpu_secs_per_1000: float, jobs: int = 4) -> Measurement:
    cpu_secs = rate * jobs * cpu_secs_per_1000 / 1000
    return Measurement([rate] * jobs, 8.0, 1.0, cpu_secs, 10**9, 9, all_cores=8, other_cores=0.0)


def parts(
    alone: Measurement,
    each: Measurement,
    shared: Measurement,
    rounds: tuple[float, float] = (1.0, 1.0),
) -> Measurements:
    """`rounds`: what the two of `each` are times it."""
    before, after = (
        replace(each, samples_per_sec=[share * rate for rate in each.samples_per_sec])
        for share in rounds
    )
    return Measurements(alone, (before, after), shared)


ALONE, EACH = part(390, 9.0, jobs=1), part(100, 10.0)


def test_what_the_numbers_mean() -> None:
    faster = judge(parts(ALONE, EACH, part(400, 2.3)))
    assert faster.kind == "faster"
    assert (
        faster.text == "4 jobs need 23 % of the CPU they need now, and each can load 4.0x as fast."
    )
    assert judge(parts(ALONE, EACH, part(100, 2.3))).kind == "less-cpu"
    assert judge(parts(ALONE, EACH, part(102, 9.8))).kind == "nothing"
    # Jobs that keep all cores busy with handing on what costs nothing ...
    busy = replace(part(50_000, 0.01), all_cores=2)
    cheap = judge(parts(part(90_000, 0.01, jobs=1), busy, part(90_000, 0.005)))
    assert cheap.kind == "nothing"
    assert cheap.text.endswith(" 1.0 % of a core for each 1,000 samples/s of a job.")
    # ... and jobs that wait for one disk.
    waiting = judge(parts(part(3200, 0.002, jobs=1), part(800, 0.002), part(3200, 0.001)))
    assert waiting.kind == "faster"
    assert "load 4.0x as fast each: they share what they wait for" in waiting.text


def test_a_slowdown_is_no_gain() -> None:
    slower = judge(parts(ALONE, EACH, part(50, 3.0)))
    assert slower.kind == "slower"
    assert slower.text == (
        "On one feed each job would load only 0.50x as fast (50 samples/s), for 30 % of the CPU: "
        "share it only if that is fast enough."
    )
    assert judge(parts(ALONE, EACH, part(50, 12.0))).text.endswith(": keep a loader each.")
    cheap = judge(parts(part(9e4, 0.01, jobs=1), part(9e4, 0.01), part(9e3, 0.005)))
    assert cheap.kind == "nothing"
    assert cheap.text.endswith("; on one feed each job would load only 0.10x as fast.")


def test_a_cache_that_fills_is_not_taken_for_a_gain() -> None:
    steady = parts(ALONE, EACH, part(150, 2.3), rounds=(0.95, 1.05))
    assert unsteadiness(steady) is None
    assert judge(steady).kind == "faster"
    # 40, then 160 samples/s: 150 may be what the second round would have had in its place.
    warming = parts(ALONE, EACH, part(150, 2.3), rounds=(0.4, 1.6))
    assert warming.each.mean == pytest.approx(100)
    assert judge(warming).kind == "less-cpu"
    assert "40 samples/s at first and 160 after the feed's turn" in (unsteadiness(warming) or "")
    assert judge(parts(ALONE, EACH, part(60, 2.3), rounds=(0.4, 1.6))).kind == "less-cpu"


def test_two_rounds_are_one_part() -> None:
    long = replace(EACH, secs=3.0, cpu_secs=30.0, processes=7, other_cores=4.0)
    short = replace(EACH, samples_per_sec=[500.0] * 4, cpu_secs=2.0, memory_bytes=2 * 10**9)
    both = Measurements(ALONE, (long, short), EACH).each
    assert (both.secs, both.cpu_secs) == (4.0, 32.0)
    # As many samples as there were in both, for the CPU time of both.
    assert both.samples_per_sec == [200.0] * 4
    assert (both.memory_bytes, both.processes, both.other_cores) == (2 * 10**9, 9, 3.0)


def test_money_follows_the_verdict() -> None:
    def saved(shared: Measurement) -> Saving:
        found = parts(ALONE, EACH, shared)
        return saving(found, judge(found), 3.6)

    # 400 and 1,600 samples/s of all jobs, on a machine for 3.60 an hour: 0.001 a second.
    faster = saved(part(400, 2.5))
    assert faster.per_hour == pytest.approx(2.7)
    assert "cost 0.625 instead of 2.5" in faster.text
    assert "saves up to 2.70 in each hour" in faster.text
    # 4 of 8 cores are busy, and a quarter of that would do.
    less = saved(part(105, 2.5))
    assert less.per_hour == pytest.approx(3.6 * 3 / 8)
    assert "frees 3.0 of 8 cores, worth up to 1.35 in each hour" in less.text
    for worthless in (part(109, 10.0), part(80, 2.5)):
        assert saved(worthless) == (0.0, "No money to save.")


def test_others_on_the_machine() -> None:
    quiet = part(100, 10.0)
    assert disturbance({"a": quiet}) is None
    # There are cores left for both.
    assert disturbance({"a": replace(quiet, other_cores=1.0)}) is None
    note = disturbance({"a": replace(quiet, other_cores=4.0)})
    assert note is not None
    assert "4.0 of the 8 cores" in note


def test_a_quota_limits_the_cores(tmp_path: Path) -> None:
    groups = tmp_path / "proc/self"
    groups.mkdir(parents=True)
    (groups / "cgroup").write_text("5:cpuset:/\n1:cpu,cpuacct:/old\n0::/jobs/mine\n")
    mine = tmp_path / "sys/fs/cgroup/jobs/mine"
    mine.mkdir(parents=True)
    assert quota_cores(tmp_path) == math.inf
    (mine / "cpu.max").write_text("max 100000\n")
    assert quota_cores(tmp_path) == math.inf
    (mine / "cpu.max").write_text("400000 100000\n")
    (mine.parent / "cpu.max").write_text("150000 100000\n")
    assert quota_cores(tmp_path) == 1.5
    old = tmp_path / "sys/fs/cgroup/cpu/old"
    old.mkdir(parents=True)
    (old / "cpu.cfs_period_us").write_text("100000\n")
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    assert quota_cores(tmp_path) == 1.5
    (old / "cpu.cfs_quota_us").write_text("50000\n")
    assert quota_cores(tmp_path) == 0.5
    assert quota_cores(tmp_path / "nowhere") == math.inf


def test_the_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    one = busy_cpu_secs()
    assert allowed_cores() == 1
    monkeypatch.setattr(usage, "quota_cores", lambda: 0.5)
    assert allowed_cores() == 0.5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set())
    assert busy_cpu_secs() == 0 < one


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "is_drawn"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_a_bar_is_for_terminals_that_can_draw_over_a_line(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], is_drawn: bool
) -> None:
    for key in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress({"one": 1.0, "two": 1.0})
    progress.enter("one")
    progress.enter("two")
    progress.clear()
    shown = terminal.getvalue()
    assert ("\x1b[K" in shown) == is_drawn
    assert (" 50%  two" in shown) == is_drawn
    assert (shown == "  one ...\n  two ...\n") != is_drawn
