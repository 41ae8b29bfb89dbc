"""What the documentation shows: its code runs, its commands parse, its messages exist."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from feedline._core import cli
from support import guide

pytestmark = pytest.mark.timeout(150, method="thread")

SCRIPTS = {(block.page, block.script): block.text for block in guide.code() if block.script}
FEEDLINE = (sys.executable, "-m", "feedline")


def script(page: str, name: str, folder: Path) -> Path:
    path = folder / name
    path.write_text(SCRIPTS[page, name].replace("wait_for=2)", "wait_for=2, linger_secs=0.1)"))
    return path


def run(command: Sequence[str], cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "block", [block for block in guide.code() if block.script is None], ids=str
)
def test_code_runs_and_prints_what_is_shown(block: guide.Block, tmp_path: Path) -> None:
    output = run([sys.executable, "-c", block.text], tmp_path)
    assert output == (block.output or "")


def test_no_script_is_left_out() -> None:
    assert set(SCRIPTS) == {
        ("first-feed", "both.py"),
        ("first-feed", "data.py"),
        ("first-feed", "train.py"),
        ("several-jobs", "train.py"),
    }


def test_a_server_and_its_jobs(tmp_path: Path) -> None:
    script("first-feed", "data.py", tmp_path)
    train = script("first-feed", "train.py", tmp_path)
    serve = ["serve", "data.py:make_loader", "--name", "images", "--arg", "size=4000"]
    server = subprocess.Popen([*FEEDLINE, *serve], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        epochs = [f"epoch {epoch}: 4000 samples in 42 batches" for epoch in (0, 1)]
        assert run([sys.executable, str(train)], tmp_path).splitlines() == epochs
        together = [*FEEDLINE, "run", "-n", "2", "--", sys.executable, str(train)]
        output = run(together, tmp_path).splitlines()
        for job in (0, 1):
            assert [line[4:] for line in output if line.startswith(f"[{job}] ")] == epochs
    finally:
        server.send_signal(signal.SIGINT)
        _, talk = server.communicate(timeout=60)
    assert server.returncode == 130, talk


@pytest.mark.usefixtures("servers_leave")
def test_one_script_brings_its_loader(tmp_path: Path) -> None:
    both = script("first-feed", "both.py", tmp_path)
    both.write_text(both.read_text().replace("batch_size=96)", "batch_size=96, linger_secs=0.1)"))
    assert run([sys.executable, str(both)], tmp_path) == "2000 samples\n"


@pytest.mark.usefixtures("servers_leave")
def test_the_same_script_with_seeds(tmp_path: Path) -> None:
    train = script("several-jobs", "train.py", tmp_path)
    command = [*FEEDLINE, "run", "-n", "2", "--", sys.executable, str(train), "--seed", "{i}"]
    output = run(command, tmp_path)
    for seed in (0, 1):
        for epoch in (0, 1):
            assert f"seed {seed}, epoch {epoch}: 1000 samples" in output


def is_understood(command: tuple[str, ...]) -> bool:
    """Whether the real parser takes a command line: asked for help, it has read all before it."""
    at = command.index("--") if "--" in command else len(command)
    code, *_ = cli([*command[:at], "--help", *command[at:]], ["feedline"])
    return code == 0


def test_commands_parse() -> None:
    commands = guide.commands()
    assert len({command[0] for command in commands}) > 8
    assert not [command for command in commands if not is_understood(command)]


def test_wrong_commands_do_not_parse() -> None:
    assert not is_understood(("no-such-command",))
    assert not is_understood(("top", "--no-such-flag"))
    assert not is_understood(("metrics", "--port", "many"))
    assert not is_understood(("run", "-n", "4", "--no-such-flag", "--", "python", "train.py"))


def sources() -> str:
    """All strings of the program, as far as they are written in one piece."""
    files = [*guide.ROOT.glob("crates/*/src/**/*.rs"), *guide.ROOT.glob("python/feedline/*.py")]
    text = "\n".join(file.read_text() for file in files)
    # Where a long string is broken into lines.
    text = re.sub(r"""\\\n\s*|["']\s*\n\s*f?["']""", "", text)
    return text.replace('\\"', '"')


def test_messages_exist() -> None:
    """Each part of a message between what differs is in the code, word for word."""
    text = sources()
    missing = [
        (message, part)
        for message in guide.messages()
        for part in re.split(r'"?…"?', message)
        if len(part.strip(' ":()')) > 1 and part.strip(' "') not in text
    ]
    assert not missing
