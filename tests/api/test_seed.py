"""``seed=``: the same order and the same draws in every run, whatever the jobs have seeded."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline._seeding import seed_before_making, seed_epoch
from support.share_scripts import numbers

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]

SCRIPT = """
    import json, os, random, signal, sys, numpy as np, torch
    import feedline
    from torch.utils.data import DataLoader, Dataset

    how, seed, kills, own = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "kills", sys.argv[4]
    torch.manual_seed(int(own))

    class Noisy(Dataset):
        def __init__(self):
            self.first = random.random()
        def __len__(self):
            return 32
        def __getitem__(self, index):
            return index, torch.rand(()), np.random.rand() + self.first, random.random()

    def make_loader():
        generator = torch.Generator() if how == "own" else None
        workers = 2 if how == "workers" else 0
        return DataLoader(Noisy(), 8, shuffle=True, generator=generator, num_workers=workers)

    feed = feedline.share(make_loader, "train", batch_size=5, ring=24, linger_secs=0.1,
        reconnect_secs=60, seed=seed)
    found = []
    for epoch in range(3):
        for number, fields in enumerate(feed):
            found += zip(*(field.tolist() for field in fields))
            if number == 3 and kills and epoch == 1:
                os.kill(feed.stats()["server_pid"], signal.SIGKILL)
    print(json.dumps(found))
"""


@pytest.mark.parametrize("how", ["global", "own", "workers"])
def test_two_runs_with_one_seed_are_alike(how: str, tmp_path: Path) -> None:
    """Also if one of them lost its server, and whatever the script itself has seeded."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    runs = []
    for seed, what, own in (("7", "reads", "1"), ("7", "kills", "2")):
        command = [sys.executable, str(script), how, seed, what, own]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    assert runs[0] == runs[1]
    orders = [[index for index, *_ in runs[0][32 * epoch :][:32]] for epoch in range(3)]
    assert all(sorted(order) == list(range(32)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


class Draws(Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.rand(), torch.rand(())


def test_a_servers_epochs_depend_on_its_seed_and_their_number() -> None:
    def read(seed: int, epochs: int) -> list[Any]:
        loader: Any = DataLoader(Draws(), 4, shuffle=True)
        with (
            feedline.Server(loader, "train", seed=seed, epochs=epochs),
            feedline.attach("train", batch_size=16) as feed,
        ):
            return [[one.tolist() for one in batch] for _ in range(epochs) for batch in feed]

    random.seed(1)
    first = read(3, 2)
    random.seed(2)
    torch.rand(100)
    assert read(3, 2) == first
    assert first[0] != first[1]
    assert read(4, 1) != first[:1]


def test_an_epoch_can_be_seeded_without_those_before_it() -> None:
    own = torch.Generator()
    loader: Any = DataLoader(Draws(), 4, shuffle=True, generator=own)

    def draw(epoch: int) -> list[float]:
        seed_epoch(5, epoch, loader)
        return [random.random(), np.random.rand(), float(torch.rand(())), own.initial_seed()]

    first, second = draw(0), draw(1)
    assert draw(1) == second
    assert draw(0) == first
    assert all(one != other for one, other in zip(first, second, strict=True))
    seed_before_making(5)
    assert random.random() not in (first[0], second[0])


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "7"])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(feedline.FeedValueError, match="is not a seed"):
        feedline.Server([], "train", seed=seed)


def test_another_seed_is_another_feed() -> None:
    with (
        feedline.share(numbers, "train", linger_secs=0.1, seed=0),
        pytest.raises(feedline.FeedMismatchError, match=r"seed: 0 in the .*, 1 here"),
    ):
        feedline.share(numbers, "train", linger_secs=0.1, seed=1)


def test_the_command_line_has_it(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(
        "import random\nimport numpy as np\ndef make_loader():\n"
        "    return [np.array([random.random(), np.random.rand()])]\n"
    )
    found = []
    for seed in ("0", "0", "1"):
        command = [sys.executable, "-m", "feedline", "serve", f"{tmp_path / 'data.py'}:make_loader"]
        command += ["--name", "train", "--epochs", "1", "--seed", seed]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            with feedline.attach("train", batch_size=2, timeout_secs=60) as feed:
                found += [batch.tolist() for batch in feed]
            server.send_signal(signal.SIGTERM)
    assert found[0] == found[1] != found[2]
