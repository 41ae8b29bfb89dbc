"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

LOADER = "loader = DataLoader(dataset, batch_size=96, shuffle=True, num_workers=2)"
NAMED = LOADER.replace(")", ', name="images")')
LAST = "torch.Size([80, 3, 64, 64]) torch.Size([80])"

pytestmark = pytest.mark.timeout(150, method="thread")


def shapes(samples: int, batch_size: int) -> list[str]:
    sizes = [batch_size] * (samples // batch_size) + [samples % batch_size]
    return [f"torch.Size([{size}, 3, 64, 64]) torch.Size([{size}])" for size in sizes]


def script(loader: str) -> str:
    [text] = BLOCKS
    assert text.startswith("# train.py")
    assert LOADER in text
    text = text.replace(LOADER, loader).replace("range(100)", "range(2)")
    return text.replace("...  # a training step", "print(images.shape, labels.shape)")


def expected() -> list[str]:
    epochs = [[*shapes(2000, 96), f"epoch {epoch} ended with {LAST}"] for epoch in range(2)]
    return epochs[0] + epochs[1]


def test_its_script_as_one_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script(LOADER))
    job = [sys.executable, "train.py"]
    done = subprocess.run(job, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected()


@pytest.mark.usefixtures("servers_leave")
def test_its_script_as_two_jobs(tmp_path: Path) -> None:
    assert f"-{LOADER}\n+{NAMED}\n" in TEXT
    named = NAMED.replace('name="images")', 'name="images", linger_secs=0.1)')
    (tmp_path / "train.py").write_text(script(named))
    assert "feedline run -n 4 -- python train.py\n" in TEXT
    jobs = [sys.executable, "-m", "feedline", "run", "-n", "2", "--", sys.executable, "train.py"]
    done = subprocess.run(jobs, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for job in range(2):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{job}] ")]
        assert [line[4:] for line in lines] == expected()
