"""torch.multiprocessing queues: one per consumer, one shared copy of each batch for all of them.

The copy goes straight into shared memory (as torch's own collate does in a worker), so it is made
once, not twice as by `clone().share_memory_()`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.multiprocessing

from ..counters import STOP, Counters
from ..payload import checked, leaves, read_every_byte
from ..processes import TrialProcesses
from . import TrialSetup

_DEPTH = 8  # batches under way to each consumer


def _shared_copy(leaf: torch.Tensor) -> torch.Tensor:
    new_shared: Any = torch.UntypedStorage._new_shared
    storage: torch.UntypedStorage = new_shared(leaf.numel() * leaf.element_size())
    shared = torch.empty(0, dtype=leaf.dtype).set_(storage, 0, leaf.shape, leaf.stride())
    return shared.copy_(leaf)


def _produce(counters: Counters, slot: int, setup: TrialSetup, queues: list[Any]) -> None:
    torch.set_num_threads(1)
    words, at, done = counters.words, counters.line(slot), 0
    single = isinstance(setup.batches[0], torch.Tensor)
    while not words[STOP]:
        batch = setup.batches[done % len(setup.batches)]
        copy = tuple(_shared_copy(leaf) for leaf in leaves(batch))
        for queue in queues:
            queue.put(copy[0] if single else copy)
        done += 1
        words[at] = done
    for queue in queues:
        queue.put(None)


def _consume(counters: Counters, slot: int, setup: TrialSetup, queue: Any) -> None:
    torch.set_num_threads(1)
    words, at = counters.words, counters.line(slot)
    reading = setup.work == "read"
    batches = checked(iter(queue.get, None), setup.batches, setup.ring_bytes)
    for taken, batch in enumerate(batches, 1):
        if reading:
            read_every_byte(batch)
        words[at] = taken


class TorchQueue:
    name = "torch.multiprocessing"
    warm_batches = 2 * _DEPTH
    least_secs = 1.0

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None:
        context = torch.multiprocessing.get_context("fork")
        queues = [context.Queue(maxsize=_DEPTH) for _ in range(setup.consumers)]
        for i, queue in enumerate(queues):
            processes.fork("consumer", 1 + i, _consume, setup, queue)
        processes.fork("producer", 0, _produce, setup, queues)
