"""Help, version, completions, streams and colours, from the wheel and from the plain binary."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import feedline
from conftest import Start
from support import roles
from support.commands import SERVED, WHEEL, Begin, begin, binary, environment, ignoring, run
from support.processes import TESTS
from support.snapshots import check_snapshot

__all__ = ["begin"]

COMMANDS = [
    *("demo", "serve", "run", "ls", "top", "stop", "which", "doctor", "bench", "dashboard"),
    "metrics",
    "completions",
]
HELP = TESTS / "cli" / "snapshots" / "help"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_data(command: str) -> None:
    result = run(*filter(None, [command]), "--help", program=binary())
    assert (result.returncode, result.stderr) == (0, "")
    assert f"feedline {command}".strip() in result.stdout.partition("Example")[2]
    check_snapshot(command or "feedline", result.stdout, HELP)


def test_no_command_is_left_out() -> None:
    listed = run("--help", program=binary()).stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [row.split()[0] for row in listed.splitlines()] == COMMANDS


@pytest.mark.parametrize("program", [binary, lambda: WHEEL], ids=["binary", "wheel"])
def test_the_version(program: object) -> None:
    assert callable(program)
    result = run("--version", program=program())
    assert (result.returncode, result.stdout) == (0, f"feedline {feedline.__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_scripts(shell: str) -> None:
    script = run("completions", shell, program=binary()).stdout
    for command in COMMANDS:
        assert command in script
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, text=True, timeout=60, check=False)
        assert checked.returncode == 0


def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(run("completions", "bash", program=binary()).stdout)
    ask = (
        f"source {tmp_path}/script; COMP_WORDS=(feedline ser); COMP_CWORD=1;"
        "_feedline feedline ser feedline; echo ${COMPREPLY[@]}"
    )
    answer = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert answer.stdout == "serve\n"


def test_a_reader_that_has_enough(start: Start) -> None:
    start(roles.serve, loader="support.served:numbered").expect("ready")
    for program in (binary(), WHEEL):
        command = " ".join([*program, "ls", "--json"])
        result = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command} | head -c1"],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert (result.stdout, result.stderr) == ("[", "")
        assert result.returncode == 0


def test_a_stream_that_is_closed() -> None:
    command = " ".join([*binary(), "ls", "--json", ">&-"])
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "panicked" not in result.stderr


@pytest.mark.parametrize("is_childless", [False, True])
def test_the_binary_hands_over_to_python(begin: Begin, is_childless: bool) -> None:
    serving = begin(
        *("serve", f"{SERVED}:numbered", "--name", "train"),
        program=ignoring("SIGCHLD", binary()) if is_childless else binary(),
        FEEDLINE_PYTHON=sys.executable,
    )
    serving.until(f'serving "train" (pid {serving.pid})')
    assert run("stop", "train", program=binary()).returncode == 0
    assert serving.exit_code() == 0


@pytest.mark.parametrize(("env", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals(env: dict[str, str], is_coloured: bool) -> None:
    for command in (["stop", "nobody"], ["serve", "no.such:thing", "--name", "a"]):
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [*WHEEL, *command],
            stdin=subprocess.DEVNULL,
            stderr=theirs,
            env=environment(TERM="xterm", **env),
            timeout=60,
            check=False,
        )
        os.close(theirs)
        said = os.read(ours, 65536).decode()
        os.close(ours)
        assert done.returncode in (1, 2)
        assert "error:" in said
        assert ("\x1b[" in said) == is_coloured
