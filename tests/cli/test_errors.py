"""Every way to use the command line wrongly, with what it says: what, why, what next."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest

from conftest import Start
from support import roles
from support.commands import SERVED, WHEEL, binary, run
from support.processes import TESTS
from support.snapshots import FOLDER, check_snapshot, settled

_SERVE = ("serve", "--name", "images")

# Parsed, or done, in Rust; the plain binary says it more quickly than Python would.
PLAIN = {
    "nothing": [],
    "no-such-command": ["srve"],
    "no-such-option": ["ls", "--jsno"],
    "demo-no-jobs": ["demo", "--jobs", "0"],
    "demo-no-time": ["demo", "--seconds", "0"],
    "demo-cores-in-words": ["demo", "--cores", "two"],
    "serve-nothing": ["serve"],
    "serve-no-name": ["serve", "data.py:make_loader"],
    "serve-no-loader": ["serve", "--name", "images"],
    "serve-lag": ["serve", "data.py:make_loader", "--name", "images", "--lag", "wait"],
    "serve-epochs": ["serve", "data.py:make_loader", "--name", "images", "--epochs", "few"],
    "serve-no-epochs": ["serve", "data.py:make_loader", "--name", "images", "--epochs", "0"],
    "serve-for-nobody": ["serve", "data.py:make_loader", "--name", "images", "--wait-for", "0"],
    "serve-port": ["serve", "data.py:make_loader", "--name", "a", "--metrics-port", "99999"],
    "serve-negative": ["serve", "data.py:make_loader", "--name", "a", "--linger-secs=-1"],
    "serve-ring": [*_SERVE, "data.py:make_loader", "--ring"],
    "run-nothing": ["run"],
    "run-no-count": ["run", "--", "true"],
    "run-none": ["run", "-n", "0", "--", "true"],
    "run-no-command": ["run", "-n", "2"],
    "run-no-dashes": ["run", "-n", "2", "python", "train.py"],
    "run-serve-no-name": ["run", "-n", "2", "--serve", "data.py:make_loader", "--", "true"],
    "run-name-unknown": ["run", "-n", "2", "--", "echo", "{name}"],
    "run-bad-name": ["run", "-n", "2", "--name", "a/b", "--", "true"],
    "run-no-program": ["run", "-n", "2", "--", "no-such-program"],
    "run-not-executable": ["run", "-n", "2", "--", "./train.py"],
    "run-output-is-a-file": ["run", "-n", "2", "--output", "train.py", "--", "true"],
    "run-grace": ["run", "-n", "2", "--grace-secs", "soon", "--", "true"],
    "ls-more": ["ls", "images"],
    "top-unknown": ["top", "images", "--once"],
    "top-no-interval": ["top", "--interval-secs", "0"],
    "stop-nothing": ["stop"],
    "stop-both": ["stop", "images", "--all"],
    "stop-unknown": ["stop", "images"],
    "stop-two-unknown": ["stop", "images", "labels"],
    "stop-bad-name": ["stop", "a/b"],
    "stop-no-time": ["stop", "images", "--timeout-secs", "0"],
    "doctor-more": ["doctor", "images"],
    "bench-nothing": ["bench"],
    "bench-no-jobs": ["bench", "data.py:make_loader", "--jobs", "0"],
    "bench-no-batch": ["bench", "data.py:make_loader", "--batch-size", "0"],
    "bench-price": ["bench", "data.py:make_loader", "--price-per-hour", "cheap"],
    "dashboard-port": ["dashboard", "--port", "80800"],
    "dashboard-host": ["dashboard", "--host", "192.0.2.1"],
    "dashboard-more": ["dashboard", "images"],
    "metrics-port": ["metrics", "--port", "metrics"],
    "metrics-file": ["metrics", "--file", "nowhere/feeds.jsonl"],
    "metrics-no-interval": ["metrics", "--interval-secs", "0"],
    "completions-nothing": ["completions"],
    "completions-unknown": ["completions", "cshell"],
    "run-log-is-a-folder": ["run", "-n", "2", "--output", "logs", "--", "true"],
    "dashboard-no-interval": ["dashboard", "--interval-secs", "0"],
    "dashboard-no-host": ["dashboard", "--host", "no such host"],
    "dashboard-token": ["dashboard", "--token", "short"],
}

PYTHON = {
    "loader-no-colon": [*_SERVE, "served.py"],
    "loader-no-function": [*_SERVE, "served.py:"],
    "loader-no-file": [*_SERVE, "serve.py:numbered"],
    "loader-no-folder": [*_SERVE, "src/served.py:numbered"],
    "loader-a-folder": [*_SERVE, "package.py:numbered"],
    "loader-not-python": [*_SERVE, "./served.txt:numbered"],
    "loader-no-module": [*_SERVE, "no.such.module:numbered"],
    "loader-not-a-module": [*_SERVE, "some file:numbered"],
    "loader-misspelt": [*_SERVE, "served.py:numberd"],
    "loader-not-there": [*_SERVE, "broken/empty.py:make_loader"],
    "loader-not-a-function": [*_SERVE, "served.py:NOT_A_LOADER"],
    "loader-hides-a-module": [*_SERVE, "broken/json.py:make_loader"],
    "loader-import-fails": [*_SERVE, "broken/imports.py:make_loader"],
    "loader-syntax": [*_SERVE, "broken/syntax.py:make_loader"],
    "loader-exits": [*_SERVE, "broken/exits.py:make_loader"],
    "loader-relative": [*_SERVE, "broken/relative.py:make_loader"],
    "loader-raises": [*_SERVE, "served.py:raises"],
    "loader-returns-none": [*_SERVE, "served.py:gives_nothing"],
    "loader-returns-a-number": [*_SERVE, "served.py:gives_a_number"],
    "loader-fails": [*_SERVE, "served.py:failing"],
    "arg-no-value": [*_SERVE, "served.py:numbered", "--arg", "samples"],
    "arg-no-key": [*_SERVE, "served.py:numbered", "--arg", "=4"],
    "arg-twice": [*_SERVE, "served.py:numbered", "--arg", "samples=1", "--arg", "samples=2"],
    "arg-unknown": [*_SERVE, "served.py:numbered", "--arg", "sample=4"],
    "arg-missing": [*_SERVE, "served.py:needs"],
    "arg-text-for-bool": [*_SERVE, "served.py:numbered", "--arg", "shout=false"],
    "arg-of-a-loader": [*_SERVE, "served.py:READY", "--arg", "samples=4"],
    "serve-bad-name": ["serve", "served.py:numbered", "--name", "a/b"],
    "serve-bad-ring": [*_SERVE, "served.py:numbered", "--ring", "5x"],
    "serve-bad-history": [*_SERVE, "served.py:numbered", "--history", "1.5"],
    "serve-no-history-dir": [*_SERVE, "served.py:numbered", "--history-dir", "nowhere"],
    "serve-replay-state": [*_SERVE, "data.py:make_loader", "--replay", "--state-file", "state"],
    "serve-no-state": [*_SERVE, "served.py:numbered", "--state-file", "state"],
    "serve-allow": [*_SERVE, "served.py:numbered", "--allow", "no-such-user"],
    "serve-metrics-file": [*_SERVE, "served.py:numbered", "--metrics-file", "nowhere/feed.jsonl"],
    "bench-no-file": ["bench", "serve.py:numbered"],
    "bench-raises": ["bench", "served.py:raises"],
}
# What a run says of its jobs is no error of its own.
TALK = ["run-feed-ends", "run-job-ends"]
# Of cases that need more than a command.
OTHERS = [
    *TALK,
    *("stop-misspelt", "stop-silent", "serve-name-taken", "serve-folder-open"),
    *("serve-path-too-long", "binary-no-python", "binary-no-package"),
    *("metrics-port-taken", "serve-port-taken"),
    *("run-too-many-files", "dashboard-no-port", "serve-gives-up"),
]

# Of loaders in `unmeasured.py` that bench can't measure, and of the demo.
MEASURED = {
    "bench-no-data": ["bench", "unmeasured.py:empty"],
    "bench-loader-fails": ["bench", "unmeasured.py:failing"],
    "bench-batch-size": ["bench", "unmeasured.py:strings", "--batch-size", "3"],
    "bench-killed": ["bench", "unmeasured.py:killed"],
    "bench-crashes": ["bench", "unmeasured.py:leaving"],
    "bench-too-slow": ["bench", "unmeasured.py:never"],
    "bench-two-batches": ["bench", "unmeasured.py:once"],
    "bench-hangs": ["bench", "unmeasured.py:stuck", "--seconds", "3"],
    "demo-needs": ["demo"],
    "demo-too-short": ["demo", "--images", "8", "--seconds", "0.001", "--json"],
    "demo-killed": ["demo", "--images", "8", "--json"],
}

BROKEN = {
    "empty.py": "import os\n",
    "json.py": "def make_loader(): return []\n",
    "imports.py": "import os\nimport no_such_package\n\ndef make_loader(): return []\n",
    "syntax.py": "def make_loader(:\n    return []\n",
    "exits.py": "import sys\n\nsys.exit('usage: exits.py DATA')\n",
    "hangs.py": "import time\n\ndef make_loader():\n    time.sleep(3600)\n    yield []\n",
    "relative.py": "from . import other\n\ndef make_loader(): return []\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with files of all kinds, the loaders of ``served.py`` among them."""
    (tmp_path / "served.py").symlink_to(SERVED)
    for name in ("package.py", "broken", "logs/job-0.log"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in BROKEN.items():
        (tmp_path / "broken" / name).write_text(text)
    (tmp_path / "served.txt").write_text("")
    (tmp_path / "train.py").write_text("print('training')\n")
    return tmp_path


def check(name: str, args: list[str], project: Path, *, program: list[str], **env: str) -> str:
    """Run it wrongly, and compare; gives what it said."""
    result = run(*args, program=program, cwd=project, **env)
    folder = env.get("FEEDLINE_DIR", os.environ["FEEDLINE_DIR"])
    paths = {str(project): "/project", folder: "/feeds", str(TESTS): "/tests"}
    shown = " ".join(args).replace(str(project), "/project")
    text = f"$ feedline {shown}\nexit code {result.returncode}\n\n{result.stderr}"
    check_snapshot(name, settled(text, paths))
    assert result.stdout == ""
    assert result.returncode in (1, 2)
    return result.stderr


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_typed_wrongly(name: str, project: Path) -> None:
    check(name, PLAIN[name], project, program=binary())


@pytest.mark.parametrize("name", PYTHON)
def test_loaders_that_cannot_be_served(name: str, project: Path) -> None:
    check(name, PYTHON[name], project, program=WHEEL)


def test_both_doors_say_the_same(project: Path) -> None:
    for name in ("no-such-command", "stop-unknown"):
        check(name, PLAIN[name], project, program=WHEEL)


def test_the_nearest_name_is_offered(start: Start, project: Path) -> None:
    start(roles.serve, name="imagenet", loader="support.served:numbered").expect("ready")
    check("stop-misspelt", ["stop", "imagnet"], project, program=binary())


def test_a_server_that_is_silent(start: Start, project: Path) -> None:
    server = start(roles.serve, loader="support.served:numbered")
    server.expect("ready")
    server.stop()
    try:
        check("stop-silent", ["stop", "train", "--timeout-secs", "0.3"], project, program=binary())
    finally:
        server.resume()


def test_a_name_that_is_taken(start: Start, project: Path) -> None:
    start(roles.serve, name="images", loader="support.served:numbered").expect("ready")
    # Before the loader is made.
    check("serve-name-taken", [*_SERVE, "served.py:raises"], project, program=WHEEL)


def test_a_folder_that_others_may_write_to(project: Path) -> None:
    place = project / "open"
    place.mkdir()
    place.chmod(0o777)
    args = [*_SERVE, "served.py:numbered"]
    check("serve-folder-open", args, project, program=WHEEL, FEEDLINE_DIR=str(place))


def test_a_folder_whose_path_is_too_long(project: Path) -> None:
    place = str(project / ("x" * 100))
    args = [*_SERVE, "served.py:numbered"]
    check("serve-path-too-long", args, project, program=WHEEL, FEEDLINE_DIR=place)


def test_a_port_that_is_taken(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        check("metrics-port-taken", ["metrics", "--port", port], project, program=binary())
        args = [*_SERVE, "served.py:numbered", "--metrics-port", port]
        check("serve-port-taken", args, project, program=WHEEL)


def test_too_many_open_files(project: Path) -> None:
    few = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *binary()]
    check("run-too-many-files", ["run", "-n", "30", "--", "sleep", "60"], project, program=few)


def test_ports_that_are_all_taken(project: Path) -> None:
    with contextlib.ExitStack() as taken:
        # By somebody else, perhaps.
        with contextlib.suppress(OSError):
            taken.enter_context(socket.create_server(("127.0.0.1", 65535)))
        check("dashboard-no-port", ["dashboard", "--port", "65535"], project, program=binary())


def test_a_loader_that_is_given_up_on(project: Path) -> None:
    args = [*_SERVE, "broken/hangs.py:make_loader", "--loader-timeout-secs", "0.3"]
    assert check("serve-gives-up", args, project, program=WHEEL).count("error: ") == 1


@pytest.mark.parametrize(
    ("name", "loader", "code"),
    [
        ("run-feed-ends", "served.py:raises", "pass"),
        ("run-job-ends", "served.py:numbered", "{i} or list(feedline.attach('images'))"),
    ],
)
def test_jobs_that_cannot_all_begin(name: str, loader: str, code: str, project: Path) -> None:
    args = ["run", "-n", "2", "--name", "images", "--serve", loader]
    args += ["--", sys.executable, "-c", f"import feedline; {code}"]
    result = run(*args, program=WHEEL, cwd=project)
    # Without what the feed and the jobs say, and how long each of them took.
    said, _, _ = result.stderr.partition("\nJOB")
    said = "\n".join(line for line in said.splitlines() if not line.startswith("["))
    shown = " ".join(args).replace(sys.executable, "python")
    check_snapshot(name, f"$ feedline {shown}\nexit code {result.returncode}\n\n{said}\n")


def test_a_binary_without_python(project: Path) -> None:
    args = [*_SERVE, "served.py:numbered"]
    nowhere = "/no/such/python"
    check("binary-no-python", args, project, program=binary(), FEEDLINE_PYTHON=nowhere)
    check("binary-no-package", args, project, program=binary(), FEEDLINE_PYTHON="/bin/false")


UNMEASURED = """
import os, signal, time
import numpy as np

def empty():
    return []

def failing():
    yield np.arange(8)
    raise ValueError("sample 8 is broken")

def strings():
    return [{"text": ["a", "b"], "x": np.zeros((2, 3))}] * 40

def killed():
    yield np.arange(8)
    os.kill(os.getpid(), signal.SIGKILL)

def leaving():
    yield np.arange(8)
    print("out of licences", flush=True)
    os._exit(3)

def never():
    time.sleep(1000)
    yield np.arange(8)

def once():
    yield np.arange(8)
    time.sleep(1000)

def stuck():
    began = time.monotonic()
    while time.monotonic() < began + 0.4:
        time.sleep(0.005)
        yield np.arange(8)
    time.sleep(1000)
"""
# What would take long, or a machine without torch: the command line with a setting changed.
CHANGED = {
    "bench-too-slow": "feedline._cli.bench.command._START_SECS = -3.0",
    "demo-needs": "feedline.demo.command.NEEDS = dict(no_torch='torch', no_pillow='pillow')",
    "demo-killed": "feedline.demo.half._HERE = 'killed'",
}
PROGRAM = """import sys, feedline.__main__, feedline._cli.bench.command, feedline.demo.command
{change}
sys.exit(feedline.__main__.main())"""


@pytest.mark.parametrize("name", MEASURED)
def test_what_cannot_be_measured(name: str, project: Path) -> None:
    (project / "unmeasured.py").write_text(UNMEASURED)
    (project / "killed").mkdir()
    kill = "import os; os.kill(os.getpid(), 9)\n"
    (project / "killed" / "job.py").write_text(kill)
    args = [*MEASURED[name], "--jobs", "1"]
    if "--seconds" not in args:
        args += ["--seconds", "0.2"]
    program = [sys.executable, "-c", PROGRAM.format(change=CHANGED.get(name, ""))]
    check(name, args, project, program=program, TERM="dumb")


def test_every_error_says_what_to_do_next() -> None:
    for name in [*PLAIN, *PYTHON, *OTHERS, *MEASURED]:
        _, _, said = (FOLDER / f"{name}.txt").read_text().partition("\n\n")
        if name == "nothing":
            assert "Examples:" in said
            continue
        _, error, text = ("", "", said) if name in TALK else said.partition("error: ")
        assert error or name in TALK, name
        _, *rest = text.splitlines()
        way_out = [line for line in rest if line.startswith(("  ", "Usage: ", "For more inform"))]
        assert way_out, f"{name} says no way out:\n{said}"
        assert "not there yet" not in said, name


def test_no_snapshot_is_left_over() -> None:
    named = {*PLAIN, *PYTHON, *OTHERS, *MEASURED}
    left = {path.stem for path in FOLDER.glob("*.txt")} - named
    assert not left, f"nothing makes these any more: {sorted(left)}"
