"""Where an epoch is, and the steps that are left of it."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from feedline._core import count_steps, next_step
from feedline._errors import BatchSizeError, FeedValueError

if TYPE_CHECKING:
    from feedline._dataloader import DataLoader

Span = tuple[int, int]
"""Places of an epoch: the first, and the one after the last."""


@dataclasses.dataclass
class Step:
    """One batch: its samples' keys, and the places that are consumed with it."""

    keys: list[Any]
    spans: list[Span]
    """Those of all ranks."""


@dataclasses.dataclass
class Place:
    """Where an epoch is. The loader keeps it when the iterator is gone."""

    epoch: int
    given: int
    """All samples before this place were handed out."""
    ahead: list[Span] = dataclasses.field(default_factory=list)
    """What was handed out beyond it, in order: with ``in_order=False`` batches are overtaken."""
    sampler_rng: str | None = None
    """What a sampler's generator was like before the epoch: its state's bytes, in base64."""
    is_over: bool = False

    def hand_out(self, step: Step) -> None:
        """Count a step as consumed."""
        if not self.ahead and len(step.spans) == 1 and step.spans[0][0] == self.given:
            self.given = step.spans[0][1]
            return
        merged: list[Span] = []
        for first, end in sorted([*self.ahead, *step.spans]):
            if merged and merged[-1][1] >= first:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((first, end))
        while merged and merged[0][0] <= self.given:
            self.given = max(self.given, merged.pop(0)[1])
        self.ahead = merged

    def left(self, samples: int) -> list[Span]:
        """Return what is still to come of an epoch of so many samples."""
        firsts = [self.given, *(end for _, end in self.ahead)]
        ends = [*(first for first, _ in self.ahead), samples]
        return [(first, end) for first, end in zip(firsts, ends, strict=True) if first < end]


def generator_state(text: str | None) -> torch.Tensor | None:
    """Return what ``sampler_rng`` holds; a ``ValueError`` or ``TypeError`` for what is none."""
    if text is None:
        return None
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)


def generator_text(state: torch.Tensor) -> str:
    """Return a generator's state as text."""
    return base64.b64encode(state.numpy().tobytes()).decode()


def checked_epoch(epoch: int) -> int:
    """Return an epoch's number, if it can be one."""
    number = int(epoch)
    if not 0 <= number < 1 << 48:
        raise FeedValueError(f"epoch {number} is not possible\n  epochs are counted from 0")
    return number


def checked_ahead(ahead: Any, sample: int) -> list[Span]:
    """Return the spans of a state; a ``ValueError`` for what is none."""
    spans = [(int(first), int(end)) for first, end in ahead]
    bounds = [sample, *itertools.chain.from_iterable(spans)]
    if bounds != sorted(set(bounds)):
        raise ValueError(ahead)
    return spans


def planned_steps(loader: DataLoader[Any], place: Place) -> Iterator[Step]:
    """Cut what is left of an epoch into this rank's batches."""
    plan, order = loader._plan(), loader._order
    samples, left, taken = len(plan), place.left(len(plan)), 0
    total = sum(end - first for first, end in left)
    while step := _next_step(loader, total, taken, place.epoch):
        first, end, taken_before = step[0], step[1], taken
        taken = step[2]
        if order is not None:
            # Asked for anew: a mixture's weights may have changed for what is to come.
            plan = order.plan
        keys: list[int] = []
        for begin, until in _places(left, first, end):
            keys += plan.numbers(loader.seed, place.epoch, begin, until - begin)
        spans = _places(left, taken_before, taken)
        if order is not None:
            order.dealt_out(place.epoch * samples + spans[-1][1])
        yield Step(keys, spans)


def span_of_step(
    samples: int, step: int, size: int, shard: tuple[int, int] | None, *, drop_last: bool
) -> tuple[int, int]:
    """Return the first place of a rank's step, and how many samples it has there."""
    rank, world = shard or (0, 1)
    steps = count_steps(samples, size, world, drop_last)
    if not 0 <= step < steps:
        raise IndexError(f"step {step} of an epoch with {steps} steps")
    span = next_step(samples, step * size * world, size, rank, world, drop_last)
    assert span is not None
    return span[0], span[1] - span[0]


def is_over(loader: DataLoader[Any], place: Place, samples: int) -> bool:
    """Whether no step is left of an epoch of so many samples."""
    total = sum(end - first for first, end in place.left(samples))
    size, (rank, world) = loader.batch_size or 1, loader.shard or (0, 1)
    try:
        return next_step(total, 0, size, rank, world, loader.drop_last) is None
    except ValueError:
        return False  # as will be said when it is asked for


def _next_step(
    loader: DataLoader[Any], total: int, taken: int, epoch: int
) -> tuple[int, int, int] | None:
    size, (rank, world) = loader.batch_size or 1, loader.shard or (0, 1)
    try:
        return next_step(total, taken, size, rank, world, loader.drop_last)
    except ValueError:
        raise BatchSizeError(
            f"epoch {epoch} has {total - taken} samples left, and {world} ranks share it: "
            "there is not one for each\n"
            "  use fewer ranks, or drop_last=True to leave such a rest out"
        ) from None


def _places(left: list[Span], first: int, end: int) -> list[Span]:
    """Of all that is left, the places from the first to the end."""
    if len(left) == 1:
        return [(left[0][0] + first, left[0][0] + end)]
    found = []
    for begin, until in left:
        some = min(first, until - begin), min(end, until - begin)
        if some[0] < some[1]:
            found.append((begin + some[0], begin + some[1]))
        first, end = max(0, first - (until - begin)), max(0, end - (until - begin))
    return found


def batched(keys: Iterable[Any], place: Place, size: int, *, drop_last: bool) -> Iterator[Step]:
    """Cut what a sampler yields into batches, without what was handed out."""
    left = _not_given(enumerate(keys), place)
    while len(batch := list(itertools.islice(left, size))) == size:
        yield _step(batch)
    if batch and not drop_last:
        yield _step(batch)


def own_batches(batches: Iterable[Iterable[Any]], place: Place) -> Iterator[Step]:
    """Yield a batch sampler's batches, without what was handed out."""
    at = 0
    skips = bool(place.given or place.ahead)
    for batch in batches:
        keys = list(batch)
        numbered = list(_not_given(enumerate(keys, at), place)) if skips else None
        at += len(keys)
        if numbered is None:
            yield Step(keys, [(at - len(keys), at)])
        elif numbered or (not keys and at > place.given):
            yield _step(numbered)


def _not_given(numbered: Iterable[tuple[int, Any]], place: Place) -> Iterator[tuple[int, Any]]:
    given, ahead = place.given, list(place.ahead)
    for at, key in numbered:
        while ahead and ahead[0][1] <= at:
            ahead.pop(0)
        if at >= given and not (ahead and ahead[0][0] <= at):
            yield at, key


def _step(numbered: list[tuple[int, Any]]) -> Step:
    spans: list[Span] = []
    for at, _ in numbered:
        if spans and spans[-1][1] == at:
            spans[-1] = (spans[-1][0], at + 1)
        else:
            spans.append((at, at + 1))
    return Step([key for _, key in numbered], spans)
