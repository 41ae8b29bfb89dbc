"""A plain PyTorch loop: two jobs on one feed, each with every sample once per epoch."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import feedline
from conftest import Start
from frameworks.conftest import RunTwice, Serve
from frameworks.sources import WIDTH, orders
from support.child import hear, say

SAMPLES = 50
EPOCHS = 3
BATCH = 8


def train(batch_size: int) -> None:
    feed = feedline.attach("train", batch_size=batch_size)
    assert isinstance(feed, DataLoader)
    model = nn.Linear(WIDTH, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        ids = []
        for batch in feed:
            loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ids.extend(batch["id"].tolist())
        say("epoch", ids=ids, batches=len(feed), loss=loss.item())


def test_two_jobs_get_the_same_epochs(start: Start, serve_apart: Serve) -> None:
    serve_apart(SAMPLES, wait_for=2)
    jobs = [start(train, batch_size=size) for size in (16, 7)]
    for order in orders(SAMPLES, EPOCHS):
        assert [job.expect("epoch")["ids"] for job in jobs] == [order, order]


def train_and_hang(checkpoint: str, save_at: int, hang_at: int) -> None:
    feed = feedline.attach("train", batch_size=BATCH)
    for number, _ in enumerate(feed, 1):
        if number == save_at:
            torch.save({"feed": feed.state_dict()}, checkpoint)
        if number == hang_at:
            say("hanging")
            hear()


def test_resume_in_mid_epoch_gets_exactly_the_rest(
    start: Start, serve: Serve, tmp_path: Path
) -> None:
    serve(SAMPLES, history=1.0)
    checkpoint = tmp_path / "checkpoint"
    job = start(train_and_hang, checkpoint=str(checkpoint), save_at=2, hang_at=4)
    job.expect("hanging")
    job.kill()
    feed = feedline.attach("train", batch_size=BATCH)
    feed.load_state_dict(torch.load(checkpoint)["feed"])
    first, second = orders(SAMPLES, 2)
    epochs = [[number for batch in feed for number in batch["id"].tolist()] for _ in range(2)]
    assert epochs == [first[2 * BATCH :], second]


def test_the_example(run_twice: RunTwice) -> None:
    outputs = run_twice("with_pytorch.py")
    for output in outputs:
        epochs = re.findall(r"epoch (\d): (\d+) samples", output)
        assert epochs == [("0", "2000"), ("1", "2000"), ("2", "2000")], output
    servers = {re.findall(r"served by process (\d+)", output)[0] for output in outputs}
    assert len(servers) == 1
