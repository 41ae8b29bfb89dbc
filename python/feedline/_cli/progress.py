"""A server's numbers as text: a line for each event, and a status line."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any

from feedline._cli.screen import Screen

Stats = dict[str, Any]

# The rate is an average over this time.
_WINDOW_SECS = 5.0
# Epochs that follow each other more quickly share a line.
_LINE_SECS = 1.0
# A smaller share is not mentioned.
_IDLE_SHARE = 0.1


class Progress:
    """Reports each epoch's end and each consumer that joins or leaves; draws the bar."""

    def __init__(self, screen: Screen) -> None:
        """Nothing is known yet."""
        self._screen = screen
        self._next_event = 0
        self._observations: deque[tuple[float, int]] = deque()
        # The oldest epoch whose end was not reported: its number, its start, the samples before it.
        self._epoch: tuple[int, float, int] | None = None
        # How long the source had waited before it.
        self._waited = 0.0
        self._first: tuple[int, int] | None = None
        # How many epochs were broken off before it.
        self._abandoned = 0
        self._is_over = False
        self._began: float | None = None
        # At the end the consumers are gone.
        self._consumers = 0

    def show(self, stats: Stats) -> None:
        """Take in the newest numbers."""
        now = monotonic()
        for event in stats["events"]:
            if event["number"] >= self._next_event:
                self._next_event = event["number"] + 1
                self._tell(event)
        if stats["state"] == "running":
            self._consumers = len(stats["consumers"])
        if self._made(stats) and self._began is None:
            self._began = now
        self._observations.append((now, stats["samples"]))
        while len(self._observations) > 2 and now - self._observations[1][0] >= _WINDOW_SECS:
            self._observations.popleft()
        self._end_epochs(now, stats)
        self._screen.status(self._status(stats))

    def summary(self, stats: Stats) -> str:
        """The whole run: `3 epochs, 36,000 samples in 2:03`."""
        epoch = stats["epoch"]
        is_ended = stats["state"] == "ended"
        first, _ = self._start(stats)
        epochs = counted(epoch + 1 - first, "epoch") if is_ended else f"in epoch {epoch}"
        passed = 0.0 if self._began is None else monotonic() - self._began
        return f"{epochs}, {counted(self._made(stats), _unit(stats))} in {clock(passed)}"

    def _start(self, stats: Stats) -> tuple[int, int]:
        """Where the server began: the epoch, and how much of it an earlier server had loaded."""
        self._first = self._first or (stats["epoch"], stats["samples"])
        return self._first

    def _made(self, stats: Stats) -> int:
        """Count what this server has loaded."""
        return int(stats["samples"]) - self._start(stats)[1]

    def _tell(self, event: dict[str, Any]) -> None:
        who = f"pid {event['pid']}"
        match event["kind"]:
            case "joined":
                self._screen.line(f"{who} joined ({event['text']})")
            case "left":
                self._screen.line(f"{who} left")
            case "died":
                self._screen.line(f"{who} died: {event['text']}")

    def _end_epochs(self, now: float, stats: Stats) -> None:
        epoch, samples = stats["epoch"], self._made(stats)
        if self._is_over or not samples:
            return
        # It may have begun just after the previous observation.
        first, began, before = self._epoch or (
            self._start(stats)[0],
            self._observations[max(len(self._observations) - 2, 0)][0],
            0,
        )
        self._epoch = first, began, before
        is_ended = stats["state"] == "ended"
        if (epoch == first or now - began < _LINE_SECS) and not is_ended:
            return
        running = 0 if is_ended else stats["epoch_samples"]
        last = epoch if is_ended else epoch - 1
        self._tell_epochs(first, last, samples - running - before, now - began, stats)
        self._is_over = is_ended
        self._epoch = (epoch, now, samples - running)

    def _tell_epochs(self, first: int, last: int, made: int, secs: float, stats: Stats) -> None:
        abandoned = stats["event_counts"]["abandoned"] - self._abandoned
        self._abandoned += abandoned
        if abandoned and first == last:
            length, (start, skipped) = stats["samples_per_epoch"], self._start(stats)
            at = made + (skipped if first == start else 0)
            unit = _unit(stats)
            where = counted(at, unit) if length is None else f"{at:,} of {counted(length, unit)}"
            self._screen.line(f"epoch {first} broken off at {where}: nobody reads it any more")
            return
        which = f"epoch {first}" if last == first else f"epochs {first} to {last}"
        how = f"over, {abandoned} of them broken off" if abandoned else "loaded"
        rate = made / max(secs, 0.001)
        waited, self._waited = stats["wait_secs"] - self._waited, stats["wait_secs"]
        share = min(waited / max(secs, 0.001), 1)
        idle = f" ({share:.0%} of it waiting for jobs)" if share >= _IDLE_SHARE else ""
        text = f"{counted(made, _unit(stats))} in {clock(secs)}{idle}, {_rate_text(rate, stats)}"
        self._screen.line(f"{which} {how}: {text}")

    def _rate(self) -> float:
        (first, before), (last, after) = self._observations[0], self._observations[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def _status(self, stats: Stats) -> str:
        consumers = counted(self._consumers, "consumer")
        if stats["state"] not in ("starting", "running"):
            return ""
        if not self._made(stats):
            return f"waiting for the loader's first batch  {clock(stats['uptime_secs'])}"
        length, done = stats["samples_per_epoch"], stats["epoch_samples"]
        if stats["replay"] and length is not None and stats["samples"] >= length:
            return f"the epoch is kept whole: {counted(length, _unit(stats))}  {consumers}"
        joined = sum(consumer["joined"] for consumer in stats["consumers"])
        if not stats["gate_open"]:
            return f"waiting for consumers: {joined} of {stats['wait_for']} have come"
        rate = self._rate()
        parts = [f"epoch {stats['epoch']}"]
        if length:
            parts.append(f"{self._screen.bar(done / length)} {min(done / length, 1):.0%}")
        else:
            parts.append(counted(done, _unit(stats)))
        parts.append(_rate_text(rate, stats))
        if length and rate > 0:
            parts.append(f"{clock(max(length - done, 0) / rate)} left")
        return "  ".join([*parts, consumers])


def _unit(stats: Stats) -> str:
    """What is counted as a sample."""
    return "batch" if stats["whole_batches"] else "sample"


def _rate_text(rate: float, stats: Stats) -> str:
    # There are few batches, so decimals matter.
    return f"{rate:,.1f} batches/s" if stats["whole_batches"] else f"{rate:,.0f} samples/s"


def clock(secs: float) -> str:
    """`0:31`, `2:03:07`."""
    minutes, rest = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(count: int, what: str) -> str:
    """`1 sample`, `1,204 samples`, `3 batches`."""
    plural = "es" if what.endswith("tch") else "s"
    return f"{count:,} {what}{'' if count == 1 else plural}"
