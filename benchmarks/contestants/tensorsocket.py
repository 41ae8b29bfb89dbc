"""tensorsocket 0.0.5, in fresh interpreters of a virtual environment of its own (see `peers`).

The file is both sides: imported, it is the contestant; run by the peer's interpreter, it is the
producer or a consumer. Settings, tried one by one with 64 images of 224x224 in a batch:
`producer_batch_size` 8 (the default) gives 1 batch a second, since each slice is sent with the
whole storage behind it; 4 gives 4; 3 gives 8; 2 gives 11; 1 ends in an IndexError after the first
batch. So 2 it is.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from ..counters import STOP, Counters
from ..payload import Endless, checked, leaves, prepare, read_every_byte
from ..processes import TrialProcesses, bind_to_parent
from . import TrialSetup

_PRODUCER_BATCH = 2
_FIRST_PORT = 47_310  # four ports from here on


class TensorSocket:
    name = "tensorsocket"
    warm_batches = 4 * _PRODUCER_BATCH
    least_secs = 4.0

    def __init__(self, python: Path) -> None:
        self.python = python

    def start(self, processes: TrialProcesses, setup: TrialSetup) -> None:
        for slot in range(1 + setup.consumers):
            role = "consumer" if slot else "producer"
            command = [str(self.python), "-m", __name__, role, setup.kind, setup.work]
            processes.execute(role, slot, command, setup.folder / f"tensorsocket-{slot}.log")


class _Sized(Endless):
    def __len__(self) -> int:
        return 1_000_000


def _ports() -> dict[str, Any]:
    first = _FIRST_PORT
    return {"port": first, "ack_port": first + 1, "heart_ports": (first + 2, first + 3)}


def _produce(counters: Counters, slot: int, kind: Any) -> None:
    module: Any = importlib.import_module("tensorsocket.producer")
    # By itself it listens on every interface and unpickles what comes.
    module.LOCALHOST = "tcp://127.0.0.1"
    producer = module.TensorProducer(
        _Sized(prepare(kind)),
        **_ports(),
        producer_batch_size=_PRODUCER_BATCH,
        rubber_band_pct=0.0,
    )
    for _ in producer:
        if counters.stopped:
            break


def _consume(counters: Counters, slot: int, kind: Any, work: str) -> None:
    module: Any = importlib.import_module("tensorsocket.consumer")
    module.LOCALHOST = "tcp://127.0.0.1"
    expected = prepare(kind)
    size = len(leaves(expected[0])[0])
    words, at = counters.words, counters.line(slot)
    consumer = module.TensorConsumer(**_ports(), batch_size=size)
    for taken, batch in enumerate(checked(consumer, expected, 0), 1):
        if work == "read":
            read_every_byte(batch)
        words[at] = taken
        if words[STOP]:
            break


def _main() -> None:
    import torch

    role, kind, work, fd, slot, parent, limit = sys.argv[1:]
    bind_to_parent(int(parent), float(limit))
    torch.set_num_threads(1)
    counters = Counters(int(fd))
    try:
        if role == "producer":
            _produce(counters, int(slot), kind)
        else:
            _consume(counters, int(slot), kind, work)
    except BaseException as error:
        if not counters.stopped:
            counters.fail(int(slot), f"{type(error).__name__}: {error}")
        raise
    finally:
        # Its threads are not all daemons, and would keep the process from ending.
        os._exit(0)


if __name__ == "__main__":
    _main()
