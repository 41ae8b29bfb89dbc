"""torch.multiprocessing queues: one per consumer, one shared copy of each batch for all of them.

The copy goes straight into shared memory (as torch's own collate does in a worker), so it is made
once, not twice as by `clone().share_memory_()`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.multiprocessing

from ..ledger import STOP, Ledger
from ..payload import checked, leaves, read_every_byte
from ..stage import Stage
from . import Scene

_DEPTH = 8  # batches under way to each consumer


def _shared_copy(leaf: torch.Tensor) -> torch.Tensor:
    new_shared: Any = torch.UntypedStorage._new_shared
    storage: torch.UntypedStorage = new_shared(leaf.numel() * leaf.element_size())
    shared = torch.empty(0, dtype=leaf.dtype).set_(storage, 0, leaf.shape, leaf.stride())
    return shared.copy_(leaf)


def _produce(ledger: Ledger, slot: int, scene: Scene, queues: list[Any]) -> None:
    torch.set_num_threads(1)
    words, at, done = ledger.words, ledger.line(slot), 0
    single = isinstance(scene.batches[0], torch.Tensor)
    while not words[STOP]:
        batch = scene.batches[done % len(scene.batches)]
        copy = tuple(_shared_copy(leaf) for leaf in leaves(batch))
        for queue in queues:
            queue.put(copy[0] if single else copy)
        done += 1
        words[at] = done
    for queue in queues:
        queue.put(None)


def _consume(ledger: Ledger, slot: int, scene: Scene, queue: Any) -> None:
    torch.set_num_threads(1)
    words, at = ledger.words, ledger.line(slot)
    reading = scene.work == "read"
    batches = checked(iter(queue.get, None), scene.batches, scene.ring_bytes)
    for taken, batch in enumerate(batches, 1):
        if reading:
            read_every_byte(batch)
        words[at] = taken


class TorchQueue:
    name = "torch.multiprocessing"
    warm_batches = 2 * _DEPTH
    least_secs = 1.0

    def cast(self, stage: Stage, scene: Scene) -> None:
        context = torch.multiprocessing.get_context("fork")
        queues = [context.Queue(maxsize=_DEPTH) for _ in range(scene.consumers)]
        for i, queue in enumerate(queues):
            stage.fork("consumer", 1 + i, _consume, scene, queue)
        stage.fork("producer", 0, _produce, scene, queues)
