"""One training job, as a process: a small network, a real step, any iterable of batches.

    python -m feedline.demo.job {loader,feed} FOLDER BATCH_SIZE

Only the line that makes the iterable differs between the halves. The network sees every eighth
pixel, so that a step costs little beside the decoding: the case of a GPU that waits for its CPU.

Standard output carries one JSON object a line: ``{"at", "samples", "batches"}`` after each step, at
the end ``{"batch_size", "loss", "epochs", "exact"}``. The job ends when its standard input does, or
at the next report once nobody reads them, so it can't outlive the demo.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import torch
from torch import nn

import feedline
from feedline._measurement.end_signal import is_told_to_end

from .images import CLASSES, make_loader

FEED_NAME = "demo"
LEARNING_RATE, MOMENTUM = 0.01, 0.9


class Tally:
    """Counts how often each sample came by in each epoch."""

    def __init__(self) -> None:
        self.epochs = 0
        self.samples = 0
        self.batches = 0
        self.exact = True
        self._seen = torch.zeros(0, dtype=torch.int64)

    def add(self, numbers: torch.Tensor) -> None:
        counts = torch.bincount(numbers, minlength=len(self._seen))
        counts[: len(self._seen)] += self._seen
        self._seen = counts
        self.samples += len(numbers)
        self.batches += 1

    def end_epoch(self, size: int) -> None:
        self.exact &= len(self._seen) == size and bool((self._seen == 1).all())
        self.epochs += 1
        self._seen = torch.zeros(size, dtype=torch.int64)

    def end(self) -> None:
        """Close the broken-off last epoch, in which no sample may have come twice."""
        self.exact &= bool((self._seen <= 1).all())


def report(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def train(batches: Iterable[list[torch.Tensor]], images: int) -> tuple[float, Tally]:
    """Go over `batches`, epoch after epoch, until told to end."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 13 * 13, CLASSES)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss_mean = 0.0
    tally = Tally()
    while True:
        for pixels, labels, numbers in batches:
            coarse = pixels[:, :, 4::8, 4::8].float().div_(255)
            loss = nn.functional.cross_entropy(network(coarse), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            loss_mean = 0.9 * loss_mean + 0.1 * loss.item() if tally.samples else loss.item()
            tally.add(numbers)
            report(at=monotonic(), samples=tally.samples, batches=tally.batches)
            if is_told_to_end():
                tally.end()
                return loss_mean, tally
        tally.end_epoch(images)


def main() -> None:
    source, folder, batch_size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    images = sum(1 for _ in folder.glob("*.jpg"))
    batches: Iterable[list[torch.Tensor]]
    if source == "loader":
        batches = make_loader(folder, batch_size)
    else:
        batches = feedline.attach(FEED_NAME, batch_size=batch_size)
    loss, tally = train(batches, images)
    report(batch_size=batch_size, loss=loss, epochs=tally.epochs, exact=tally.exact)


if __name__ == "__main__":
    main()
