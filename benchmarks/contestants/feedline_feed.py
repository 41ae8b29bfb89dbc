"""Feedline itself, used as the README shows it: a server in one process, `attach` in the others."""

from __future__ import annotations

import os
import time

import torch

import feedline

from ..ledger import STOP, Ledger
from ..payload import Endless, checked, read_every_byte
from ..stage import Stage
from . import Scene

_NAME = "bench"


def _produce(ledger: Ledger, slot: int, scene: Scene, metrics_port: int | None) -> None:
    torch.set_num_threads(1)
    loader = Endless(scene.batches)
    ring = f"{scene.ring_bytes // 1_000_000}MB"
    with feedline.Server(
        loader, _NAME, wait_for=scene.consumers, ring=ring, metrics_port=metrics_port
    ) as server:
        while not ledger.stopped:
            stats = server.stats()
            if stats["state"] not in ("starting", "running"):
                server.wait()
                return
            ledger.note(slot, stats["ring_bytes"])
            time.sleep(0.1)


def _consume(ledger: Ledger, slot: int, scene: Scene) -> None:
    torch.set_num_threads(1)
    words, at = ledger.words, ledger.line(slot)
    reading = scene.work == "read"
    batches = checked(iter(feedline.attach(_NAME)), scene.batches, scene.ring_bytes)
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

    def cast(self, stage: Stage, scene: Scene) -> None:
        os.environ["FEEDLINE_DIR"] = str(scene.folder)
        stage.fork("producer", 0, _produce, scene, self.metrics_port)
        for i in range(scene.consumers):
            stage.fork("consumer", 1 + i, _consume, scene)
