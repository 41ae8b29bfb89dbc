"""``feedline run``: jobs that start together and end together, whatever happens to them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from support.commands import (
    SERVED,
    WHEEL,
    Begin,
    begin,
    binary,
    environment,
    ignoring,
    run,
)
from support.processes import processes_with
from support.waiting import TIMEOUT_SECS, eventually

__all__ = ["begin"]

Unread = Callable[..., subprocess.Popen[bytes]]

# Ends with its own exit code when it gets a signal.
OBEDIENT = "trap 'echo told; exit 7' TERM INT; echo ready; while true; do sleep 0.02; done"
STUBBORN = "trap '' TERM INT; echo ready; while true; do sleep 0.02; done"
# Fails when the marker is there.
MARKED = "while [ ! -e $FEEDLINE_DIR/on ]; do sleep 0.02; done; rm $FEEDLINE_DIR/on; exit 3"


def jobs(count: int, script: str, *options: str) -> list[str]:
    return ["run", "-n", str(count), *options, "--", "sh", "-c", script]


@pytest.mark.parametrize("program", [binary, lambda: WHEEL], ids=["binary", "wheel"])
def test_each_job_has_its_number_and_its_prefix(program: object) -> None:
    assert callable(program)
    script = 'echo "$FEEDLINE_JOB/$FEEDLINE_JOBS {i}/{n} $PYTHONUNBUFFERED {{i}}"; echo e{i} >&2'
    result = run(*jobs(3, script), program=program())
    assert result.returncode == 0
    printed = sorted(result.stdout.splitlines())
    assert printed == [f"[{i}] {i}/3 {i}/3 1 {{i}}" for i in range(3)]
    said = result.stderr.splitlines()
    assert sorted(said[:3]) == ["[0] e0", "[1] e1", "[2] e2"]
    assert said[3].split() == ["JOB", "EXIT", "TIME"]
    assert [row.split()[:2] for row in said[4:]] == [["0", "0"], ["1", "0"], ["2", "0"]]


def test_the_name_is_there_for_all() -> None:
    result = run(*jobs(1, "echo {name} $FEEDLINE_NAME", "--name", "images"), program=binary())
    assert result.stdout == "[0] images images\n"


def test_bytes_that_are_no_text_pass() -> None:
    script = r"printf 'a\377b\n'; printf '\r1 %%\r2 %%\r3 %%\n'; printf 'no end'"
    command = [*binary(), *jobs(1, script)]
    result = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert result.stdout == b"[0] a\xffb\n[0] 1 %\n[0] 3 %\n[0] no end\n"


def test_output_goes_to_files(tmp_path: Path) -> None:
    logs = tmp_path / "deep" / "logs"
    result = run(
        *jobs(2, "echo out {i}; echo err {i} >&2", "--output", str(logs)), program=binary()
    )
    assert (result.returncode, result.stdout) == (0, "")
    for i in range(2):
        assert (logs / f"job-{i}.log").read_text() == f"out {i}\nerr {i}\n"


def test_a_failure_names_its_log(tmp_path: Path) -> None:
    result = run(*jobs(2, "exit {i}", "--output", str(tmp_path), "--keep-going"), program=binary())
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith(f"see {tmp_path}/job-1.log")


def test_when_one_fails_the_others_are_ended(begin: Begin) -> None:
    script = f"if [ {{i}} = 0 ]; then {MARKED}; fi; {OBEDIENT}"
    running = begin(*jobs(3, script), program=binary())
    eventually(lambda: running.printed.count("ready") == 2)
    Path(os.environ["FEEDLINE_DIR"], "on").touch()
    assert running.exit_code() == 3
    assert "job 0 failed (exit code 3): ending the others" in running.said
    assert running.printed.count("told") == 2


def test_or_they_go_on(begin: Begin) -> None:
    running = begin(*jobs(3, "sleep 0.{i}; exit {i}", "--keep-going"), program=binary())
    assert running.exit_code() == 2
    assert "ending" not in running.said


def test_one_that_does_not_end_is_killed(begin: Begin) -> None:
    script = f"if [ {{i}} = 0 ]; then {MARKED}; fi; {STUBBORN}"
    running = begin(*jobs(2, script, "--grace-secs", "0.2"), program=binary())
    running.until("ready")
    Path(os.environ["FEEDLINE_DIR"], "on").touch()
    assert running.exit_code() == 3
    assert "job 1 did not end in 0.2 s: killed" in running.said
    assert "SIGKILL" in running.said


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 7), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("program", [binary, lambda: WHEEL], ids=["binary", "wheel"])
def test_signals_reach_all_jobs(begin: Begin, number: int, code: int, program: object) -> None:
    assert callable(program)
    running = begin(*jobs(2, OBEDIENT), program=program())
    eventually(lambda: running.printed.count("ready") == 2)
    running.signal(number)
    assert running.exit_code() == code
    assert running.printed.count("told") == (0 if number == signal.SIGHUP else 2)


def test_a_users_signal_is_only_handed_on(begin: Begin) -> None:
    script = "trap 'echo usr; exit 0' USR1; echo ready; while true; do sleep 0.02; done"
    running = begin(*jobs(2, script), program=binary())
    eventually(lambda: running.printed.count("ready") == 2)
    running.signal(signal.SIGUSR1)
    assert running.exit_code() == 0
    assert running.printed.count("usr") == 2


def test_a_second_interrupt_kills(begin: Begin) -> None:
    running = begin(*jobs(2, STUBBORN), program=binary())
    eventually(lambda: running.printed.count("ready") == 2)
    running.signal(signal.SIGINT)
    running.until("s for job 0, job 1 to end; Ctrl-C again kills at once\n")
    running.signal(signal.SIGINT)
    assert running.exit_code() == 130
    assert running.said.count("SIGKILL") == 2


def test_a_signal_counts_as_in_a_shell() -> None:
    result = run(*jobs(1, "kill -SEGV $$"), program=binary())
    assert result.returncode == 128 + signal.SIGSEGV
    assert "SIGSEGV" in result.stderr


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_what_a_job_leaves_running_ends_with_it(folder: Path, trap: str) -> None:
    result = run(*jobs(1, f"({trap} sleep 1000) & echo started"), program=binary())
    assert result.returncode == 0
    assert result.stdout == "[0] started\n"
    eventually(lambda: not processes_with(str(folder)))


def test_jobs_do_not_outlive_it(begin: Begin, folder: Path) -> None:
    running = begin(*jobs(2, "echo ready; exec sleep 1000"), program=binary())
    eventually(lambda: running.printed.count("ready") == 2)
    running.signal(signal.SIGKILL)
    eventually(lambda: not processes_with(str(folder)))


def test_nobody_reads_its_output_any_more() -> None:
    command = [*binary(), *jobs(2, "yes")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.wait(30) == 128 + signal.SIGPIPE


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Unread]:
    """Start jobs, of which job 0 fails when stderr is full; nobody reads it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(script: str, *options: str) -> subprocess.Popen[bytes]:
        fails = f"while [ ! -e {tmp_path}/fail ]; do sleep 0.02; done; exit 3"
        script = f"if [ {{i}} = 0 ]; then {fails}; fi; {script}"
        running = subprocess.Popen(
            [*binary(), *jobs(2, script, *options)],
            stderr=subprocess.PIPE,
            env=environment(),
        )
        started.append(running)
        stderr = running.stderr
        assert stderr is not None
        size = fcntl.fcntl(stderr, fcntl.F_GETPIPE_SZ)
        eventually(lambda: _waiting(stderr) == size)
        (tmp_path / "fail").touch()
        return running

    yield start
    for running in started:
        running.kill()
        running.communicate(timeout=TIMEOUT_SECS)


def _waiting(pipe: IO[bytes]) -> int:
    """How many bytes wait to be read."""
    count = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


def test_jobs_are_ended_though_nobody_reads(unread: Unread, folder: Path) -> None:
    """As behind a pager."""
    running = unread("exec yes >&2")
    eventually(lambda: processes_with(str(folder)) == [running.pid])
    said = running.communicate(timeout=TIMEOUT_SECS)[1].decode()
    assert running.returncode == 3
    assert "job 0 failed (exit code 3): ending the others\n" in said
    assert said.splitlines()[-1].split()[:2] == ["1", "SIGTERM"]


def test_and_killed_and_an_interrupt_is_handled(unread: Unread, folder: Path) -> None:
    """As after Ctrl-S."""
    running = unread("trap '' TERM; yes >&2", "--grace-secs", "0.2")
    eventually(lambda: processes_with(str(folder)) == [running.pid])
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert running.wait(TIMEOUT_SECS) == 130


@pytest.mark.parametrize("program", [binary, lambda: WHEEL], ids=["binary", "wheel"])
def test_jobs_end_where_children_are_ignored(program: object) -> None:
    assert callable(program)
    result = run(*jobs(2, "exit {i}", "--keep-going"), program=ignoring("SIGCHLD", program()))
    assert result.returncode == 1
    assert [row.split()[:2] for row in result.stderr.splitlines()[-2:]] == [["0", "0"], ["1", "1"]]


def test_a_feed_is_served_beside_them(begin: Begin) -> None:
    code = (
        "import feedline, sys; feed = feedline.attach(sys.argv[1], batch_size=10);"
        "print(sum(len(batch[1]) for batch in feed))"
    )
    running = begin(
        *("run", "-n", "2", "--name", "train", "--serve", f"{SERVED}:numbered"),
        *("--arg", "samples=60", "--", sys.executable, "-c", code, "{name}"),
        program=binary(),
        FEEDLINE_PYTHON=sys.executable,
    )
    assert running.exit_code() == 0, running.said
    assert sorted(running.out) == ["[0] 60\n", "[1] 60\n"]
    assert '[feed] serving "train"' in running.said
    assert '[feed] feed "train" ended' in running.said


# Reads on after the signal, like a job that finishes its epoch first.
READS_ON = """
import itertools, feedline
feed = feedline.attach("train", batch_size=10)
batches = itertools.chain.from_iterable(itertools.repeat(feed))
try:
    for batch in batches:
        print("reading")
except KeyboardInterrupt:
    # It may have come between two epochs, and have ended the chain.
    batches = itertools.chain.from_iterable(itertools.repeat(feed))
    print("\\nread on", len([next(batches) for _ in range(9)]))
"""


def test_the_feed_outlives_the_jobs_that_are_told_to_end(begin: Begin) -> None:
    running = begin(
        *("run", "-n", "2", "--name", "train", "--serve", f"{SERVED}:numbered"),
        *("--", sys.executable, "-c", READS_ON),
    )
    eventually(lambda: all(f"[{job}] reading" in running.printed for job in (0, 1)))
    running.signal(signal.SIGINT)
    assert running.exit_code() == 130
    assert all(f"[{job}] read on 9\n" in running.out for job in (0, 1)), running.said
    assert "Error" not in running.said


# Reads what there is.
READS_ALL = """
import os, sys, feedline
feed = feedline.attach("train", format="numpy")
try:
    for batch in feed:
        print(batch.sum())
        open(os.environ["FEEDLINE_DIR"] + "/on", "w")
except feedline.LoaderError as error:
    print("broken" in str(error))
    sys.exit(4)
"""


def test_jobs_hear_themselves_that_their_feed_has_failed(begin: Begin, folder: Path) -> None:
    running = begin(
        *("run", "-n", "3", "--name", "train", "--serve", f"{SERVED}:failing_when_told"),
        *("--arg", "batches=5", "--", sys.executable, "-c", READS_ALL),
    )
    assert running.exit_code() == 4
    for job in range(3):
        own = [line for line in running.out if line.startswith(f"[{job}]")]
        assert own == [f"[{job}] 28\n"] * 5 + [f"[{job}] True\n"]
    # The feed may still be on its way out when the last job is gone.
    jobs = [line for line in running.said.splitlines() if not line.startswith("feed")]
    assert not any("ended by us" in line for line in jobs)
    (folder / "on").unlink()


def test_jobs_that_ignore_the_failed_feed_are_ended(begin: Begin, folder: Path) -> None:
    code = (
        "import feedline, os, time; next(iter(feedline.attach('train', format='numpy')));"
        "open(os.environ['FEEDLINE_DIR'] + '/on', 'w'); time.sleep(3600)"
    )
    running = begin(
        *("run", "-n", "2", "--name", "train", "--serve", f"{SERVED}:failing_when_told"),
        *("--grace-secs", "0.3", "--", sys.executable, "-c", code),
    )
    assert running.exit_code() == 1
    assert (
        "the feed failed (exit code 1): its jobs get the error, and have 0.3 s to end\n"
        in running.said
    )
    assert running.said.count("ended by us") == 2
    (folder / "on").unlink()


def test_a_job_that_ends_without_a_batch_keeps_nobody_waiting(begin: Begin) -> None:
    code = (
        "import feedline, os; os.environ['FEEDLINE_JOB'] == '1' or "
        "list(feedline.attach('train', batch_size=10))"
    )
    running = begin(
        *("run", "-n", "2", "--name", "train", "--serve", f"{SERVED}:numbered"),
        *("--", sys.executable, "-c", code),
    )
    assert running.exit_code() == 1, running.said
    assert "job 1 ended before the feed had all its jobs" in running.said


def test_a_feed_that_ends_first_starts_no_job(begin: Begin) -> None:
    loader = f"{SERVED}:raises"
    running = begin(
        *("run", "-n", "2", "--name", "train", "--serve", loader), *("--", "echo", "started")
    )
    assert running.exit_code() == 1
    assert running.printed == ""
    assert "the feed ended (exit code 1) before a job was started\n" in running.said
    assert f"  try it alone: feedline serve {loader} --name train\n" in running.said
