"""torchdata's StatefulDataLoader: a server that is restarted goes on in the middle of an epoch.

python examples/from_stateful_dataloader.py     # kills its own server, and loses nothing
"""

import os
import signal
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

import feedline


class Numbers:
    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> int:
        return index


def make_loader() -> StatefulDataLoader[Any]:
    """Called by each server; the state file has the loader's place in its epoch."""
    return StatefulDataLoader(Numbers(), batch_size=32, shuffle=True)


if __name__ == "__main__":
    feed = feedline.share(
        make_loader,
        "stateful-example",
        batch_size=48,
        ring=500,
        state_file="feed.state",
        reconnect_secs=60.0,
    )
    servers = set()
    for epoch in range(2):
        numbers: list[int] = []
        for batch in feed:
            numbers.extend(batch.tolist())
            servers.add(feed.stats()["server_pid"])
            if len(numbers) == 48 * 20 and epoch == 0:
                os.kill(feed.stats()["server_pid"], signal.SIGKILL)
        print(f"epoch {epoch}: {len(numbers)} samples, {len(set(numbers))} different ones")
    print(f"from {len(servers)} servers")
