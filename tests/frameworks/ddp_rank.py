"""One rank of a data-parallel job, for torchrun: trains, and reports what it got and learned.

python -m torch.distributed.run --nproc-per-node 2 ddp_rank.py EPOCHS [late | dies]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import chain
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import feedline
from support.child import say
from support.loaders import EPOCH, content

BATCH = 16


def die(feed: feedline.Feed, rank: int) -> None:
    """Rank 1 is killed when rank 0 has begun to read; torchrun then ends that one."""
    begun = Path(os.environ["BEGUN"])
    if rank == 0:
        batches = iter(feed)
        next(batches)
        begun.touch()
        signal.pause()
    while not begun.exists():
        time.sleep(0.01)  # pause: polls
    say("dies", rank=rank)
    os.kill(os.getpid(), signal.SIGKILL)


def train(epochs: int, incident: str) -> None:
    rank = int(os.environ["RANK"])
    if incident == "late" and rank == 1:
        time.sleep(1)  # pause: late on purpose
    feed = feedline.attach("train", batch_size=BATCH, shard="auto")
    if incident == "late":
        # One batch is inspected before the ranks wait for each other.
        next(iter(feed))
    if incident == "dies" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        die(feed, rank)
    distributed.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Linear(37, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(epochs):
        keys: list[list[int]] = []
        for x, labels in feed:
            assert (x == content(labels, 37)).all()
            loss = model(torch.as_tensor(x).float() / 255).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            keys.append(labels.tolist())
        say(
            "epoch",
            rank=rank,
            epoch=keys[0][0] // EPOCH,
            len=len(feed),
            sizes=[len(batch) for batch in keys],
            keys=list(chain.from_iterable(keys)),
            weights=model.module.weight.flatten().tolist(),
        )
    distributed.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]), sys.argv[2] if sys.argv[2:] else "")
