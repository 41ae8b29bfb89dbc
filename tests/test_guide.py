"""What the documentation shows: its code runs, its commands parse, its messages exist."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import guide
from processes import eventually, processes_with

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
        output = run([sys.executable, str(train)], tmp_path)
        assert output.splitlines() == [
            f"epoch {epoch}: 4000 samples in 42 batches" for epoch in (0, 1)
        ]
    finally:
        server.send_signal(signal.SIGINT)
        _, talk = server.communicate(timeout=60)
    assert server.returncode == 130, talk


def test_one_script_started_twice(folder: Path, tmp_path: Path) -> None:
    both = script("first-feed", "both.py", tmp_path)
    both.write_text(both.read_text().replace("batch_size=96)", "batch_size=96, linger_secs=0.1)"))
    with ThreadPoolExecutor(2) as pool:
        command = [sys.executable, str(both)]
        outputs = list(pool.map(lambda _: run(command, tmp_path), range(2)))
    assert outputs == ["2000 samples\n"] * 2
    eventually(lambda: not processes_with(str(folder)))


def test_the_same_script_with_seeds(folder: Path, tmp_path: Path) -> None:
    train = script("several-jobs", "train.py", tmp_path)
    command = [*FEEDLINE, "run", "-n", "2", "--", sys.executable, str(train), "--seed", "{i}"]
    output = run(command, tmp_path)
    for seed in (0, 1):
        for epoch in (0, 1):
            assert f"seed {seed}, epoch {epoch}: 1000 samples" in output
    eventually(lambda: not processes_with(str(folder)))


def complaint(command: tuple[str, ...]) -> str | None:
    """What the program says against a command line: asked for help, it has read all before."""
    at = command.index("--") if "--" in command else len(command)
    asked = [*FEEDLINE, *command[:at], "--help", *command[at:]]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"feedline {' '.join(command)}: {done.stderr}"


def test_commands_parse() -> None:
    commands = guide.commands()
    assert len({command[0] for command in commands}) > 8
    with ThreadPoolExecutor(2) as pool:
        complaints = [one for one in pool.map(complaint, commands) if one]
    assert not complaints, "\n".join(complaints)


def test_a_wrong_command_is_noticed() -> None:
    assert complaint(("top", "--no-such-flag")) is not None
    assert complaint(("no-such-command",)) is not None


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
