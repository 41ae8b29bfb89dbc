"""A plain PyTorch loop: two jobs on one feed, each with every sample once per epoch."""

from __future__ import annotations

import re

import torch
from torch import nn
from torch.utils.data import DataLoader

import feedline
from child import say
from conftest import Start
from frameworks.conftest import RunTwice, Serve
from frameworks.sources import WIDTH, orders

SAMPLES = 50
EPOCHS = 3


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


def test_the_example(run_twice: RunTwice) -> None:
    outputs = run_twice("with_pytorch.py")
    for output in outputs:
        epochs = re.findall(r"epoch (\d): (\d+) samples", output)
        assert epochs == [("0", "2000"), ("1", "2000"), ("2", "2000")], output
    servers = {re.findall(r"served by process (\d+)", output)[0] for output in outputs}
    assert len(servers) == 1
