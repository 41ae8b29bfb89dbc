"""Tests wait for what can be observed: what would make them depend on speed is found here.

time.sleep(...)           needs its reason on the same line: `# pause: a slow training step`;
`allow_to_go_wrong` is for time in which nothing may happen
signal.SIGSTOP            only in `stopping.stop`, which waits until every thread has stopped
monotonic() - begun < 5   is a maximum runtime; `waiting.best_of` where one has to be measured
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import TESTS
from support.stopping import is_stopped, stop
from support.waiting import best_of, eventually

HELPER = TESTS / "support" / "stopping.py"
FILES = sorted(TESTS.rglob("*.py"))


def violations(text: str, *, is_helper: bool = False) -> Iterator[str]:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if _is_pause(node) and "# pause: " not in lines[_last_line(node)]:
            yield f"{_last_line(node) + 1}: a sleep without a reason (`# pause: ...`)"
        elif isinstance(node, ast.Attribute) and node.attr == "SIGSTOP" and not is_helper:
            yield f"{node.lineno}: SIGSTOP; `stopping.stop` waits until all threads have stopped"
        elif _is_maximum_runtime(node):
            yield f"{_last_line(node) + 1}: a maximum runtime; a slow machine fails it"


def _last_line(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 1)) - 1


def _is_pause(node: ast.AST) -> bool:
    """`time.sleep(1)`, `usleep(1)`, and the same in disguise: `Event().wait(1)`."""
    match node:
        case ast.Call(func=ast.Name(id="sleep") | ast.Attribute(attr="sleep" | "usleep")):
            return True
        case ast.Call(func=ast.Attribute(attr="wait", value=ast.Call()), args=[_, *_]):
            return True
    return False


def _is_maximum_runtime(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=ast.BinOp(op=ast.Sub()) as passed, ops=[ast.Lt() | ast.LtE()]):
            return "monotonic()" in ast.unparse(passed) or "perf_counter()" in ast.unparse(passed)
        case ast.Compare(comparators=[ast.BinOp(op=ast.Sub()) as passed, _]):
            return "monotonic()" in ast.unparse(passed)
    return False


def test_no_test_depends_on_speed() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{what}"
        for file in FILES
        for what in violations(file.read_text(), is_helper=file == HELPER)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("time.sleep(1)", "sleep"),
        ("time.sleep(1)  # a while", "sleep"),
        ("threading.Event().wait(0.1)", "sleep"),
        ("ctypes.PyDLL(None).usleep(5)", "sleep"),
        ("os.kill(pid, signal.SIGSTOP)", "SIGSTOP"),
        ("assert time.monotonic() - begun < 5", "runtime"),
        ("assert 1 < time.monotonic() - begun < 5", "runtime"),
    ],
)
def test_what_depends_on_speed_is_found(code: str, what: str) -> None:
    (found,) = violations(code)
    assert what in found


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1)  # pause: slow on purpose",
        "threading.Event().wait()",
        "assert time.monotonic() < deadline",
        "assert time.monotonic() - begun > 0.2",
    ],
)
def test_what_does_not_is_left_alone(code: str) -> None:
    assert not list(violations(code))


THREADS = """
import sys, threading
for _ in range(8):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("running", flush=True)
sys.stdin.read()
"""


def test_a_stopped_process_is_one_whose_threads_have_all_stopped() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not is_stopped(process.pid)
        stop(process.pid)
        used = _cpu_ticks(process.pid)
        assert is_stopped(process.pid)
        assert _cpu_ticks(process.pid) == used
        process.kill()
        eventually(lambda: process.poll() is not None)


def _cpu_ticks(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]


def test_one_round_in_time_is_enough() -> None:
    rounds = iter([9.0, 7.0, 0.5])
    best_of(lambda: next(rounds), below_secs=1.0)
    assert not list(rounds)


def test_no_round_in_time_is_a_failure() -> None:
    with pytest.raises(AssertionError, match=r"took \[9\.0, 9\.0\] s"):
        best_of(lambda: 9.0, below_secs=1.0, rounds=2)
