"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import processes_with
from support.waiting import eventually

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

pytestmark = pytest.mark.timeout(150, method="thread")


def block(beginning: str) -> str:
    found: list[str] = [one for one in BLOCKS if one.startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shapes(samples: int, batch_size: int) -> list[str]:
    sizes = [batch_size] * (samples // batch_size) + [samples % batch_size]
    return [f"torch.Size([{size}, 3, 64, 64]) torch.Size([{size}])" for size in sizes]


def test_no_block_is_left_out() -> None:
    assert len(BLOCKS) == 6


def test_one_script_started_twice(folder: Path) -> None:
    code = block("# train.py").replace("batch_size=96)", "batch_size=96, linger_secs=0.1)")
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [job.communicate(timeout=100)[0] for job in jobs]
    assert [output.splitlines() for output in outputs] == [shapes(2000, 96)] * 2
    eventually(lambda: not processes_with(str(folder)))
    # What the server had to say, if anything, stays: that one job was slow to leave, say.
    (folder / "images.log").unlink(missing_ok=True)


def test_a_server_and_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(block("# data.py"))
    (tmp_path / "another.py").write_text(block("# another.py"))
    feedline = [sys.executable, "-m", "feedline"]
    serve = [*feedline, "serve", "data.py:make_loader", "--name", "images"]
    jobs = [*feedline, "run", "-n", "2", "--", sys.executable, "another.py"]
    for command in (serve, jobs):
        typed = " ".join(command[2:]).replace(sys.executable, "python").replace("-n 2", "-n 4")
        assert typed in TEXT
    server = subprocess.Popen(serve, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        done = subprocess.run(jobs, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        for job in range(2):
            lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{job}] ")]
            assert [line[4:] for line in lines] == shapes(2000, 96)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    assert server.returncode == 130


def test_a_place_is_kept() -> None:
    assert run(block("import feedline, numpy as np\n")).splitlines()[-1] == "[4 5 6 7]"


def test_any_batch() -> None:
    assert run(block("import feedline, numpy as np, torch")).splitlines() == [
        "['a cat', 'a cat', 'a cat']",
        "[torch.Size([4, 5]), torch.Size([4, 7]), torch.Size([4, 9])]",
        "5 [7, 7, 7, 7, 2]",
    ]


@pytest.mark.usefixtures("servers_leave")
def test_in_a_job() -> None:
    code = block("import feedline, torch").replace(
        "transform=flip", "transform=flip, linger_secs=0.1"
    )
    assert run(code) == "13 624\n"
