"""A loader that the producer's own loop serves, batch by batch."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from feedline._errors import FeedlineError
from feedline._loader import check_loader, length_of
from feedline._server import Server
from feedline.tensorsocket._arguments import (
    count,
    feed_name,
    function,
    ignore_ports,
    say_once,
    share_of_epoch,
)
from feedline.tensorsocket._handoff import Handoff
from feedline.tensorsocket.payload import Packed, TensorPayload, pack

# How long a step of the loop may take when there is nothing to do: then it is the user's turn.
_STEP_SECS = 0.5
# After the first consumer has joined, those that were started with it have this long to come.
_GATHER_SECS = 2.0
# How long the others wait for a consumer that stands still.
_STALL_SECS = 60.0
# TensorSocket's defaults; an argument that is left at its default becomes the feed's own.
_BUFFER, _PRODUCER_BATCH = 10, 8

_OVER = object()

_open: set[TensorProducer] = set()


class TensorProducer:
    """Serves what its loop loads: ``for _ in producer`` is one epoch, each step at most one batch.

    The loader runs in the thread of the loop, and what it raises is raised there, and in every
    consumer as a ``LoaderError``. A step yields None; one that finds the ring full, because
    consumers are slow or none is there, does so after half a second, without a batch; so do the
    first steps, until two seconds after the first consumer came: jobs that are started together
    see the same epochs. An epoch has
    ``len(data_loader)`` batches at most. It ends early if all consumers have left it and a newcomer
    waits for the next one.

    The feed has a name, "tensorsocket-5555" for port 5555, and is this user's. Costs what a
    ``feedline.Server`` does, and a second thread.
    """

    def __init__(
        self,
        data_loader: Any,
        port: int | str = 5555,
        ack_port: int | str = 5556,
        heart_ports: tuple[int, int] = (4444, 4445),
        rubber_band_pct: float = 0.005,
        pack_fn: Callable[[Any], Any] = pack,
        consumer_max_buffer_size: int = _BUFFER,
        producer_batch_size: int = _PRODUCER_BATCH,
    ) -> None:
        """Take the name. Nothing is loaded before the loop begins.

        ``rubber_band_pct`` is the share of the epoch that is kept for those who come late. The last
        two, added, are the ring's size in batches of the loader, if it can tell how large they are.
        ``pack_fn`` is applied to each of the loader's batches, once for all consumers.
        """
        check_loader(data_loader)
        name = feed_name(port)
        ignore_ports(ack_port, heart_ports)
        self.data_loader = data_loader
        self.port, self.ack_port, self.heart_ports = port, ack_port, heart_ports
        self.pack_fn = function("pack_fn", pack_fn)
        self.consumer_max_buffer_size = count("consumer_max_buffer_size", consumer_max_buffer_size)
        self.producer_batch_size = count("producer_batch_size", producer_batch_size)
        self.epoch = 0
        self.index = 0
        self._data_loader_len = _len(data_loader)
        self._batches: Iterator[Any] | None = None
        self._failure: BaseException | None = None
        self._is_joined = False
        self._is_begun = False
        self._joined_at: float | None = None
        self._pid = os.getpid()
        length = length_of(data_loader)
        self._handoff = Handoff(length.batches)
        self._server = Server(
            self._handoff,
            name,
            samples=length.samples,
            ring=self._ring(length.batch_size),
            history=share_of_epoch(rubber_band_pct),
            stall_timeout_secs=_STALL_SECS,
        )
        self._server.start()
        _open.add(self)

    def _ring(self, batch_size: int | None) -> int | None:
        wanted = (self.consumer_max_buffer_size, self.producer_batch_size)
        if wanted == (_BUFFER, _PRODUCER_BATCH):
            return None
        if batch_size is None:
            say_once(
                "consumer_max_buffer_size and producer_batch_size are not used: "
                "the loader can't tell how large its batches are"
            )
            return None
        return sum(wanted) * batch_size

    @property
    def consumers(self) -> dict[str, dict[str, Any]]:
        """The consumers that are attached, with counts as in ``feedline.Server.stats``."""
        attached = self._server.stats()["consumers"]
        return {f"{who['pid']}-{number}": who for number, who in enumerate(attached)}

    @property
    def data_loader_len(self) -> int:
        """Batches of an epoch, as the loader counts them."""
        return len(self)

    def __len__(self) -> int:
        if self._data_loader_len is None:
            raise TypeError(
                f"the length of this {type(self.data_loader).__name__} is not known\n"
                "  its epochs end where its iterator does"
            )
        return self._data_loader_len

    def __bool__(self) -> bool:
        """Without this ``if producer:`` would ask for the length."""
        return True

    def __iter__(self) -> Self:
        """Go on with the epoch, or begin the next one."""
        return self

    def __next__(self) -> None:
        """Load a batch and hand it to the server; or wait for half a second for space."""
        self._look_at_the_server()
        if not self._is_begun and not self._begin():
            return
        if not self._handoff.wait_for_room(_STEP_SECS):
            return
        batch = _OVER if self._handoff.is_abandoned else self._load()
        if batch is _OVER or not self._handoff.put(batch):
            self._handoff.end_epoch()
            self._batches = None
            self.index = 0
            self.epoch += 1
            raise StopIteration
        self.index += 1

    def _begin(self) -> bool:
        """Send a first batch, by which consumers are let in, and no more before they are here."""
        if self.index == 0 and self.epoch == 0:
            return True
        until = time.monotonic() + _STEP_SECS
        while time.monotonic() < until:
            if self._joined_at is None and any(who["joined"] for who in self.consumers.values()):
                self._joined_at = time.monotonic()
            joined_at = self._joined_at
            if joined_at is not None and time.monotonic() - joined_at >= _GATHER_SECS:
                self._is_begun = True
                return True
            time.sleep(0.01)
        return False

    def get_sample(self) -> None:
        """As ``next(producer)``."""
        return next(self)

    def _load(self) -> Any:
        """Give the next batch, ready to travel, or ``_OVER``."""
        try:
            if self._batches is None:
                self._batches = iter(self.data_loader)
            if self.index == self._data_loader_len:
                return _OVER
            batch = next(self._batches, _OVER)
            if batch is _OVER:
                return _OVER
            # As theirs arrive: torch collates to lists.
            batch = tuple(batch) if type(batch) is list else batch
            return batch if self.pack_fn is pack else Packed(self.pack_fn(batch))
        except Exception as error:
            self._failure = error
            trace = error.__traceback__
            # The server raises it too, for the consumers: first there, then here.
            self._handoff.close(error)
            self._drain()
            raise error.with_traceback(trace) from error.__cause__

    def join(self) -> None:
        """End the feed, once all who are attached have read it.

        In the middle of an epoch, consumers get a ``LoaderError`` after what was sent. One that
        stands still, or was killed before the end, is waited for up to a minute.
        """
        if self._is_joined:
            return
        self._is_joined = True
        self._handoff.close(self._failure)
        try:
            if self.index > 0 or self.epoch == 0 or self._failure is not None:
                self._drain()
            else:
                self._server.wait()
        finally:
            self._server.stop()
            _open.discard(self)

    def _drain(self) -> None:
        """Wait until the server is done; consumers that are attached read what is there."""
        with contextlib.suppress(FeedlineError):
            while not self._server.wait(0.1):
                if not self._server.stats()["consumers"]:
                    return

    def _look_at_the_server(self) -> None:
        why: BaseException | None = self._failure
        if self._is_joined:
            what = "the producer was joined"
        elif why is not None:
            what = "its loader has failed"
        else:
            try:
                if not self._server.wait(0):
                    return
                what = "its server was stopped"
            except FeedlineError as error:
                self._failure = error
                raise
        raise FeedlineError(
            f'feed "{self._server.name}" has ended: {what}\n  make a new TensorProducer'
        ) from why

    def _finish(self) -> None:
        """End with the process: as ``join()`` does, but for nobody who isn't here."""
        if self._pid == os.getpid():
            self._handoff.close(self._failure)
            if getattr(sys, "last_value", None) is None:
                self._drain()
            self._server.stop()


def _len(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _finish_all() -> None:
    for producer in list(_open):
        producer._finish()


# Scripts end without join() too, and what they have sent is not lost. Runs before the server's own.
atexit.register(_finish_all)

__all__ = ["TensorPayload", "TensorProducer", "pack"]
