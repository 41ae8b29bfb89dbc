"""The limit: one plain copy of each batch into a ring, and nobody who reads it.

Memory of the same kind and size as the feed's ring (a memfd, mapped shared, every page touched
before the clock starts), one thread, the copy that torch itself makes of a contiguous tensor.
`memmove`, `numpy.copyto`, anonymous memory and huge pages were tried beside it: all within the
noise of each other.
"""

from __future__ import annotations

import mmap
import os

import torch

from ..counters import STOP, Counters
from ..payload import leaves
from ..processes import TrialProcesses
from . import TrialSetup


def _copy(counters: Counters, slot: int, setup: TrialSetup) -> None:
    torch.set_num_threads(1)
    batches = [leaves(batch) for batch in setup.batches]
    fields = []
    slots = _turns(setup)
    for leaf in batches[0]:
        size = leaf.numel() * leaf.element_size()
        fd = os.memfd_create("bench-limit")
        os.ftruncate(fd, slots * size)
        ring = torch.frombuffer(mmap.mmap(fd, slots * size), dtype=leaf.dtype)
        ring.fill_(1)
        fields.append(list(ring.view(slots, *leaf.shape).unbind()))
    words, at, done = counters.words, counters.line(slot), 0
    while not words[STOP]:
        source, turn = batches[done % len(batches)], done % slots
        for field, leaf in zip(fields, source, strict=True):
            field[turn].copy_(leaf)
        done += 1
        words[at] = done


def _turns(setup: TrialSetup) -> int:
    one = sum(leaf.numel() * leaf.element_size() for leaf in leaves(setup.batches[0]))
    return max(2, setup.ring_bytes // one)


class Memcpy:
    name = "memcpy"
    warm_batches = 64
    least_secs = 0.0

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None:
        """One process is both: its copies per second are the rate, its CPU time is their price."""
        processes.fork("consumer", 1, _copy, setup)
