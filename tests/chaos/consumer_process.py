"""The inside of a consumer's process: reads a feed in some behaviour, and has every batch judged.

It says `reading` with its first batch, `beat` now and then, and `done` when it was told to end;
what is wrong is raised, and so said by child.py. Its longest waits for a batch come with `done`.
"""

from __future__ import annotations

import faulthandler
import itertools
import math
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import feedline
from chaos.judge import Judge, Policy, Wrong
from support.child import hear, say
from support.reading import is_exact, keys_of

Kept = deque[tuple[Any, Any, Any]]
"""A batch, and what was in it."""

BEAT_SECS = 0.1
# Between two epochs a consumer may hold up others for this long (LONGEST_REST in the protocol).
REST_SECS = 2.0
PAUSES = 2000
COUNTS = ("batches", "epochs", "stalled", "skipped", "gone")


@dataclass
class Behaviour:
    """How a consumer reads."""

    batch_size: int | None = 7
    drop_last: bool = False
    mode: str = "cow"
    join: str = "auto"
    slow_secs: float = 0.0
    """Sleeps this long with each batch."""
    keep: int = 0
    """Keeps this many batches."""
    write: bool = False
    """Writes into its batches."""
    leave_after: int = 0
    """Leaves an epoch after this many batches."""
    closes: bool = False
    """Attaches anew for each epoch."""
    resumes: bool = False
    """Attaches anew where it has left, with its state."""

    @classmethod
    def at_random(cls, rng: random.Random, samples: int, *, whole: bool) -> Behaviour:
        """Draw a behaviour; most are ordinary in most ways."""
        mode = rng.choice(["cow", "cow", "cow", "copy", "readonly"])
        batch_size = rng.choice([None, 1, 7, 7, 16, 32, 50, 100, 177])
        epoch_secs = rng.choice([0, 0, 0, 0.1, 0.5, 1])
        return cls(
            batch_size=None if whole else batch_size,
            drop_last=rng.random() < 0.2,
            mode=mode,
            join=rng.choice(["auto", "auto", "auto", "now"]),
            slow_secs=epoch_secs * (batch_size or 10) / samples,
            keep=rng.choice([0, 0, 0, 1, 3, 12]),
            write=mode != "readonly" and rng.random() < 0.25,
            leave_after=rng.choice([0, 0, 0, 1, 3, 10]),
            closes=rng.random() < 0.3,
            resumes=rng.random() < 0.3,
        )


class ChaosConsumer:
    """Reads one feed, epoch after epoch, until it is told to end."""

    def __init__(
        self, name: str, policy: Policy, samples: int, stall_secs: float, timeout_secs: float
    ) -> None:
        self.name = name
        self.timeout_secs = timeout_secs
        self.unit = 1
        """How many of our samples are one of the feed's: more, where batches travel whole."""
        self.policy = policy
        self.samples = samples
        self.stall_secs = stall_secs
        self.over = threading.Event()
        self.batches = 0
        self.epochs = 0
        self.stalled = 0
        self.skipped = 0
        self.gone = 0
        self.pauses: list[tuple[float, float]] = []
        self.beaten = 0.0
        self.ticked = self.returned = time.monotonic()
        self.away = False

    def beat(self, event: str = "beat", **more: Any) -> None:
        """Report what was done so far."""
        self.beaten = time.monotonic()
        counts = {name: getattr(self, name) for name in COUNTS}
        say(event, **counts, **more)

    def follow(self, behaviour: Behaviour, epochs: int | None = None) -> None:
        """Attach and read so many epochs, or until it is told to end."""
        kept: Kept = deque(maxlen=behaviour.keep)
        state: dict[str, Any] | None = None
        left = math.inf if epochs is None else epochs
        while left > 0 and not self.over.is_set():
            with closing(self._attach(behaviour)) as feed:
                judge = Judge(
                    self.policy,
                    self.samples,
                    behaviour.batch_size,
                    join=behaviour.join,
                    drop_last=self._drops(behaviour),
                )
                anew = True
                while left > 0 and not self.over.is_set():
                    judge.begin(anew=anew)
                    if state is not None:
                        feed.load_state_dict(state)
                        judge.resume(*self._place(state))
                    left -= 1
                    anew = self._iterate(feed, judge, behaviour, kept)
                    # Only a place where something was taken is a place to go on.
                    took = anew and judge.index is not None and not judge.is_resumed
                    state = feed.state_dict() if took and behaviour.resumes else None
                    if state is not None or behaviour.closes:
                        break
                self.skipped += judge.skipped
        for entry in kept:
            _check_again(entry)

    def _attach(self, behaviour: Behaviour) -> feedline.Feed:
        mode: Any = behaviour.mode
        join: Any = behaviour.join
        return feedline.attach(
            self.name,
            batch_size=behaviour.batch_size,
            drop_last=self._drops(behaviour),
            mode=mode,
            join=join,
            timeout_secs=self.timeout_secs,
            reconnect_secs=20.0 if self.policy == "restart" else 0.0,
        )

    def _iterate(self, feed: feedline.Feed, judge: Judge, behaviour: Behaviour, kept: Kept) -> bool:
        """Read one epoch, or some of it; True if it comes anew afterwards."""
        batches = iter(feed)
        for number in itertools.count(1):
            try:
                batch = self._next(batches)
            except feedline.StalledError:
                if not self._was_away():
                    raise
                self.stalled += 1
                return True
            except feedline.SamplesGoneError:
                if not self._may_be_gone(judge):
                    raise
                self.gone += 1
                return True
            # Where nobody waits for it, nobody cuts it off.
            if number == 1 and self._was_away() and self.policy not in ("skip", "replay"):
                judge.excuse()
            skipped = feed.stats()["skipped"] * self.unit
            if batch is None:
                judge.end(skipped=skipped)
                self.epochs += 1
                return False
            if not is_exact(batch):
                raise Wrong(f"bytes that were not the loader's, at {keys_of(batch)[0]}")
            judge.batch(keys_of(batch), skipped=skipped)
            state = feed.state_dict()
            if self._place(state) not in judge.places():
                raise Wrong(f"{state} after sample {judge.index} of epoch {judge.epoch}")
            self.batches += 1
            if self.batches == 1:
                self.beat("reading")
            elif time.monotonic() - self.beaten > BEAT_SECS:
                self.beat()
            self._use(batch, behaviour, kept)
            if number == behaviour.leave_after or self.over.is_set():
                return True
        raise AssertionError("unreachable")

    def _drops(self, behaviour: Behaviour) -> bool:
        # What was dropped can't be told from what was skipped; and what travels whole has no tail.
        return behaviour.drop_last and self.policy != "skip" and self.unit == 1

    def _place(self, state: dict[str, Any]) -> tuple[int, int]:
        """Give where the next key stands: a replay counts its rounds, of the same samples."""
        epoch = 0 if self.policy == "replay" else state["epoch"]
        return epoch, min(state["sample"] * self.unit, self.samples)

    def _may_be_gone(self, judge: Judge) -> bool:
        """Whether nobody had to wait: it comes with a state, or was away during a restart."""
        if self.policy == "replay":
            return False
        return judge.is_resumed or (self.policy == "restart" and self._was_away())

    def _next(self, batches: Iterator[Any]) -> Any:
        began = time.monotonic()
        # Its own work with a batch, and being stopped in it, may take as long as a stall.
        self.away |= began - self.returned > self._allowed_secs
        try:
            batch = next(batches, None)
        finally:
            self.returned = time.monotonic()
        self.pauses.append((self.returned - began, began))
        if len(self.pauses) > 2 * PAUSES:
            self.pauses = sorted(self.pauses)[-PAUSES:]
        return batch

    def tick(self) -> None:
        """Notice that this process was stopped: its clock stands still with it."""
        while True:
            self.away |= self._is_late()
            self.ticked = time.monotonic()
            time.sleep(0.02)  # pause: ticks

    @property
    def _allowed_secs(self) -> float:
        """What it may do or be stopped for without being excused; both may come together."""
        return 0.4 * min(self.stall_secs, REST_SECS)

    def _is_late(self) -> bool:
        return time.monotonic() - self.ticked > self._allowed_secs

    def _was_away(self) -> bool:
        """Whether it was stopped, since it was last asked, for so long that it may be cut off."""
        # The ticking thread may not have had its turn since.
        away, self.away = self.away or self._is_late(), False
        return away

    def _use(self, batch: Any, behaviour: Behaviour, kept: Kept) -> None:
        if behaviour.write:
            batch[0][:] = 255 - batch[0]
        entry = (batch, batch[0].copy(), batch[1].copy())
        if behaviour.keep:
            if len(kept) == kept.maxlen:
                _check_again(kept[0])
            kept.append(entry)
        if behaviour.slow_secs:
            time.sleep(behaviour.slow_secs)  # pause: slow on purpose
        _check_again(entry)


def _check_again(entry: tuple[Any, Any, Any]) -> None:
    """A batch's bytes never change while any array over them lives."""
    batch, x, keys = entry
    if not (np.array_equal(batch[0], x) and np.array_equal(batch[1], keys)):
        raise Wrong(f"a batch that was kept has changed, at {keys[0]}")


def _prepare(*arguments: Any) -> ChaosConsumer:
    # SIGUSR1 dumps the stacks of a process that hangs.
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    consumer = ChaosConsumer(*arguments)

    def listen() -> None:
        hear()
        consumer.over.set()

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=consumer.tick, daemon=True).start()
    return consumer


def _finish(consumer: ChaosConsumer) -> None:
    consumer.beat("done", pauses=sorted(consumer.pauses)[-PAUSES:])


def follow(
    samples: int,
    policy: Policy = "block",
    name: str = "train",
    stall_secs: float = 60.0,
    timeout_secs: float = 30.0,
    **behaviour: Any,
) -> None:
    """Read in one behaviour until told to end."""
    consumer = _prepare(name, policy, samples, stall_secs, timeout_secs)
    chosen = Behaviour(**behaviour)
    consumer.follow(chosen)
    _finish(consumer)


def wander(
    seed: str,
    samples: int,
    policy: Policy,
    stall_secs: float,
    unit: int = 1,
    name: str = "train",
) -> None:
    """Read in one behaviour after another, as the seed says, until told to end."""
    rng = random.Random(seed)
    consumer = _prepare(name, policy, samples, stall_secs, 30.0)
    consumer.unit = unit
    while not consumer.over.is_set():
        behaviour = Behaviour.at_random(rng, samples, whole=unit > 1)
        say(
            "behaviour",
            **{field.name: getattr(behaviour, field.name) for field in fields(behaviour)},
        )
        consumer.follow(behaviour, rng.randint(1, 5))
    _finish(consumer)
