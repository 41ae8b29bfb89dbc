"""A feed, as TensorSocket's consumers take it."""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self

from feedline._errors import FeedEndedError, FeedlineError, FeedNotFoundError, StalledError
from feedline._feed import Feed, attach
from feedline._server import feeds
from feedline.tensorsocket._arguments import feed_name, function, ignore_ports
from feedline.tensorsocket.payload import Packed, TensorPayload, pack, place, unpack

_log = logging.getLogger("feedline")

_PATIENCE_SECS = 30.0


class TensorConsumer:
    """Its own iterator: a ``for`` goes on where the last one was left, to the end of the epoch.

    Batches are tuples, have ``batch_size`` samples, the epoch's last one perhaps fewer, and are on
    the GPU where there is one. What a feed guarantees holds: every sample exactly once, in order,
    from the first one of an epoch. After the producer's last epoch: ``FeedEndedError``; if it dies:
    ``ServerLostError``.
    """

    def __init__(
        self,
        port: int | str = 5555,
        ack_port: int | str = 5556,
        heart_ports: tuple[int, int] = (4444, 4445),
        unpack_fn: Callable[[Any], Any] = unpack,
        batch_size: int | None = 64,
        *,
        drop_last: bool = False,
        timeout_secs: float = 600.0,
    ) -> None:
        """Wait up to ``timeout_secs`` for the producer (``FeedNotFoundError``), and join.

        From then on the producer waits for this consumer, for a minute at most. One that comes too
        late for the running epoch waits here for the next.

        ``batch_size=None`` gives the loader's own batches; ``drop_last`` leaves out those that are
        smaller than ``batch_size``.
        """
        ignore_ports(ack_port, heart_ports)
        self.port, self.ack_port, self.heart_ports = port, ack_port, heart_ports
        self.unpack_fn = function("unpack_fn", unpack_fn)
        self.batch_size = batch_size
        self.consumer_id = uuid.uuid4()
        self.epoch = 0
        self.batch_count = 0
        self._feed = self._attach(drop_last, float(timeout_secs))
        self._batches: Iterator[Any] | None = None
        # Batches that were taken in advance, at the very beginning.
        self._held: list[Any] = []
        self._is_settled = False
        # Whether somebody has called iter() in this epoch, and again after its last batch.
        self._is_looped = False
        self._is_end_due = False
        self._device: str | None = None
        self._join()

    def _attach(self, drop_last: bool, timeout_secs: float) -> Feed:
        """Wait for the producer, and say now and then that it takes long."""
        name, began = feed_name(self.port), time.monotonic()
        while True:
            try:
                return attach(
                    name,
                    batch_size=self.batch_size,
                    drop_last=drop_last,
                    timeout_secs=min(_PATIENCE_SECS, timeout_secs),
                )
            except (FeedNotFoundError, StalledError) as error:
                waited = time.monotonic() - began
                if waited < timeout_secs:
                    _log.warning("port %s: still waiting for a producer: %s", self.port, error)
                elif isinstance(error, StalledError):
                    raise
                else:
                    running = ", ".join(f"{feed.name} (pid {feed.pid})" for feed in feeds())
                    raise FeedNotFoundError(
                        f"no TensorProducer on port {self.port} "
                        f'(waited {waited:.0f} s for feed "{name}")\n'
                        f"  running now: {running or 'nothing'}\n"
                        "  start its script as the same user; it may be started after this one"
                    ) from error

    @property
    def batch_max(self) -> int:
        """The number of the newest batch in this epoch, -1 before the first."""
        return self.batch_count - 1

    @property
    def data_loader_len(self) -> int | None:
        """Batches of an epoch, as the producer's loader counts them, if that is known."""
        batches: int | None = self._feed.stats()["loader_batches"]
        return batches

    @property
    def loader_batch_size(self) -> int | None:
        """Samples of the loader's first batch; None if batches can't be cut."""
        size: int | None = self._feed.stats()["loader_batch_size"]
        return size

    def __len__(self) -> int:
        """Batches per epoch.

        Exact if the loader can tell its samples, as a torch DataLoader can, and after one epoch.
        Until then as many as there are if all of the loader's batches are like the first one.
        """
        try:
            return len(self._feed)
        except TypeError:
            batches, size = self.data_loader_len, self.loader_batch_size
            if batches is None or size is None or self.batch_size is None:
                raise
            return -(-batches * size // self.batch_size)

    def __bool__(self) -> bool:
        """Without this ``if consumer:`` would ask for the length, which may not be known."""
        return True

    def __iter__(self) -> Self:
        """Go on with the epoch.

        If an earlier loop has taken all of its batches, and was left before it heard of the end,
        begin the next one.
        """
        self._is_end_due = self._is_looped and self.batch_count == self._exact_len()
        self._is_looped = True
        return self

    def __next__(self) -> Any:
        """Give the next batch; at the epoch's end ``StopIteration``, and then the next epoch's."""
        if not self._is_settled:
            self._settle()
        while True:
            try:
                batch = self._held.pop(0) if self._held else self._take()
            except StopIteration:
                if self._end_epoch():
                    raise
                continue
            self._is_end_due = False
            self.batch_count += 1
            return self._unpacked(batch)

    def _take(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._feed)
        try:
            return next(self._batches)
        except FeedEndedError as error:
            self._batches = None
            raise FeedEndedError(
                f"the TensorProducer on port {self.port} has ended, after its last epoch\n"
                "  let its loop run for as many epochs as its consumers do"
            ) from error
        except FeedlineError:
            self._batches = None
            raise

    def _join(self) -> None:
        """Take a first batch, so that the feed doesn't go on without us."""
        while not self._held:
            try:
                self._held.append(self._take())
            except StopIteration:
                self._batches = None

    def _settle(self) -> None:
        """Check whether it did all the same: it waits for nobody for ever. Then begin anew."""
        try:
            self._held.append(self._take())
        except StalledError:
            self._held.clear()
        except (StopIteration, FeedlineError):
            # It comes again, after what is held.
            pass
        self._is_settled = True

    def _end_epoch(self) -> bool:
        """Give whether a loop should hear of it: an epoch without batches is none."""
        had_batches, is_end_due = self.batch_count > 0, self._is_end_due
        self._batches = None
        self._is_looped = is_end_due
        self._is_end_due = False
        self.batch_count = 0
        self.epoch += had_batches
        return had_batches and not is_end_due

    def _exact_len(self) -> int | None:
        try:
            return len(self._feed)
        except TypeError:
            return None

    def _unpacked(self, batch: Any) -> Any:
        is_packed = isinstance(batch, Packed)
        data = batch.data if is_packed else batch
        data = tuple(data) if type(data) is list else data
        if self._device is None:
            self._device = _device()
        if self._device != "cpu":
            data = place(data, self._device)
        if is_packed:
            return self.unpack_fn(data)
        if self.unpack_fn is unpack:
            return data
        return self.unpack_fn(pack(data) if isinstance(data, tuple) else data)

    def close(self) -> None:
        """Let go of the feed. Batches that are still alive keep their bytes."""
        self._batches = None
        self._held.clear()
        self._feed.close()


def _device() -> str:
    """Where theirs arrive: the producer has moved them to the GPU if there is one."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"


__all__ = ["TensorConsumer", "TensorPayload", "unpack"]
