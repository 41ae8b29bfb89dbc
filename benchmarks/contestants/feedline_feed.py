"""Feedline itself, used as the README shows it: a server in one process, `attach` in the others."""

from __future__ import annotations

import os
import time

import torch

import feedline

from ..counters import STOP, Counters
from ..payload import Endless, checked, read_every_byte
from ..processes import TrialProcesses
from . import TrialSetup

_NAME = "bench"


def _produce(counters: Counters, slot: int, setup: TrialSetup, metrics_port: int | None) -> None:
    torch.set_num_threads(1)
    loader = Endless(setup.batches)
    ring = f"{setup.ring_bytes // 1_000_000}MB"
    with feedline.Server(
        loader, _NAME, wait_for=setup.consumers, ring=ring, metrics_port=metrics_port
    ) as server:
        while not counters.stopped:
            stats = server.stats()
            if stats["state"] not in ("starting", "running"):
                server.wait()
                return
            counters.note(slot, stats["ring_bytes"])
            time.sleep(0.1)


def _consume(counters: Counters, slot: int, setup: TrialSetup) -> None:
    torch.set_num_threads(1)
    words, at = counters.words, counters.line(slot)
    reading = setup.work == "read"
    batches = checked(iter(feedline.attach(_NAME)), setup.batches, setup.ring_bytes)
    for taken, batch in enumerate(batches, 1):
        if reading:
            read_every_byte(batch)
        words[at] = taken
        if words[STOP]:
            break


class Feedline:
    name = "feedline"
    warm_batches = 64
    least_secs = 0.0
    metrics_port: int | None = None

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None:
        os.environ["FEEDLINE_DIR"] = str(setup.folder)
        processes.fork("producer", 0, _produce, setup, self.metrics_port)
        for i in range(setup.consumers):
            processes.fork("consumer", 1 + i, _consume, setup)
