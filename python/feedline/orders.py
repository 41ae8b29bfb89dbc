"""Orders of samples, for ``DataLoader(dataset, sampler=...)``: functions of the seed and the epoch.

Any place of theirs can be looked up. So a loader that has one names the samples of any step, makes
any batch again, and goes on in mid-epoch without going through what was consumed.

They are torch samplers, too. Other loaders iterate them: each iteration is the next epoch, with a
seed that is drawn once from torch's generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from feedline._core import Plan
from feedline._errors import FeedValueError

__all__ = ["Concatenation", "Mixture", "Order", "Sequential", "Shuffled", "Subset", "Weighted"]

_AT_ONCE = 4096


def numbers_of(plan: Plan, seed: int, epoch: int) -> Iterator[int]:
    """Yield the samples of an epoch."""
    samples = len(plan)
    for first in range(0, samples, _AT_ONCE):
        yield from plan.numbers(seed, epoch, first, min(_AT_ONCE, samples - first))


class Order(Sampler[int]):
    """What all orders have in common; not made itself."""

    dataset_len: int
    """How many samples the dataset has that it is an order of."""
    _arguments: tuple[str, ...] = ("dataset_len",)
    _made: Plan | None = None
    _words: str | None = None
    _seed: int | None = None
    _epoch = 0

    def _make(self) -> Plan:
        raise NotImplementedError(f"{type(self).__name__} is not an order of feedline.orders")

    @property
    def plan(self) -> Plan:
        """Which sample stands where."""
        if self._made is None:
            self._made, self._words = self._make(), None
        return self._made

    def __len__(self) -> int:
        """How many samples an epoch has."""
        return len(self.plan)

    def __str__(self) -> str:
        plan = self.plan
        if self._words is None:
            self._words = str(plan)
        return self._words

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __iter__(self) -> Iterator[int]:
        """One epoch, for loaders that know nothing of seeds; the next call is the next epoch."""
        if self._seed is None:
            self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
        epoch, self._epoch = self._epoch, self._epoch + 1
        return numbers_of(self.plan, self._seed, epoch)

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``iter()`` be this epoch. A ``feedline.DataLoader`` counts by itself."""
        self._epoch = epoch

    def seed_by_default(self, seed: int) -> None:
        """Use this seed, if none was given or drawn."""
        if self._seed is None:
            self._seed = seed

    def begin(self, seed: int, epoch: int) -> None:
        """Have the next ``iter()`` be this epoch under this seed."""
        self._seed, self._epoch = seed, epoch

    def state_dict(self) -> dict[str, Any]:
        """What a loader's state has to hold beside the order's words."""
        return {}

    def restored(self, state: Mapping[str, Any], place: int) -> Order:
        """Return what this order was when the state was saved, at this place of all epochs."""
        del state, place
        return self

    def take_over(self, restored: Order) -> None:
        """Become what ``restored`` returned."""

    def dealt_out(self, place: int) -> None:
        """Note that all samples before this place of all epochs are on their way."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._arguments}


class Sequential(Order):
    """Every sample once, by number. ``dataset``: the dataset, or how many samples it has."""

    def __init__(self, dataset: Sized | int) -> None:
        """Keep the dataset's length."""
        self.dataset_len = _checked_len(dataset)

    def _make(self) -> Plan:
        return Plan.sequential(self.dataset_len)


class Shuffled(Order):
    """Every sample once, in another order in each epoch: what ``shuffle=True`` is.

    ``dataset``: the dataset, or how many samples it has.
    """

    def __init__(self, dataset: Sized | int) -> None:
        """Keep the dataset's length."""
        self.dataset_len = _checked_len(dataset)

    def _make(self) -> Plan:
        return Plan.shuffled(self.dataset_len)


class Weighted(Order):
    """Samples drawn by weights, ``num_samples`` in each epoch (as many as there are weights).

    With ``replacement``, any place can be looked up at once. Without it, each epoch costs a list
    and a sort.
    """

    _arguments = ("dataset_len", "weights", "num_samples", "replacement")

    def __init__(
        self, weights: Iterable[float], num_samples: int | None = None, replacement: bool = True
    ) -> None:
        """Take torch's ``WeightedRandomSampler``'s arguments."""
        self.weights = _tensor(weights, torch.float64, "weights")
        self.dataset_len = len(self.weights)
        count = self.dataset_len if num_samples is None else num_samples
        self.num_samples = _checked_count(count, "num_samples")
        self.replacement = bool(replacement)
        self._made = self._make()

    def _make(self) -> Plan:
        weights = self.weights.tolist()
        return _refused(Plan.weighted, weights, self.num_samples, self.replacement)


class Subset(Order):
    """The samples of a list, as it stands or shuffled. A sample may be in it several times.

    ``dataset``: the dataset, or how many samples it has.
    """

    _arguments = ("dataset_len", "indices", "shuffle")

    def __init__(
        self, dataset: Sized | int, indices: Iterable[int], *, shuffle: bool = False
    ) -> None:
        """Take torch's ``Subset``'s arguments."""
        self.dataset_len = _checked_len(dataset)
        self.indices = _tensor(indices, torch.int64, "indices")
        self.shuffle = bool(shuffle)
        wrong = ((self.indices < 0) | (self.indices >= self.dataset_len)).nonzero()
        if len(wrong):
            at = int(wrong[0])
            raise FeedValueError(
                f"indices[{at}] is {int(self.indices[at])}, and the dataset has "
                f"{_in_words(self.dataset_len)}"
            )

    def _make(self) -> Plan:
        return Plan.subset(self.indices.tolist(), self.shuffle)


class Concatenation(Order):
    """One order after the other, over datasets that are numbered one after the other.

    That is how torch's ``ConcatDataset`` numbers them. A part is an order, a dataset, or a number
    of samples; the last two stand for ``Sequential``.
    """

    _arguments = ("dataset_len", "parts")

    def __init__(self, parts: Iterable[Order | Sized | int]) -> None:
        """Keep the parts."""
        self.parts = _checked_parts(parts)
        self.dataset_len = sum(part.dataset_len for part in self.parts)

    def _make(self) -> Plan:
        return Plan.concatenation([(part.dataset_len, part.plan) for part in self.parts])


class Mixture(Order):
    """Several orders at once, in proportions; over the same numbers as ``Concatenation``.

    A part's samples come once each before any of them comes again, also where two epochs meet and
    where the weights change. An epoch has ``num_samples`` samples (as many as all parts have).
    ``changes`` gives weights for later: ``{3: [1, 1], (5, 200): [0, 1]}`` changes them with epoch
    3, and again at sample 200 of epoch 5.
    """

    _arguments = ("dataset_len", "parts", "num_samples", "schedule")
    _until = 0
    _is_shared = False

    def __init__(
        self,
        parts: Iterable[Order | Sized | int],
        weights: Iterable[float],
        num_samples: int | None = None,
        *,
        changes: Mapping[int | tuple[int, int], Iterable[float]] | None = None,
    ) -> None:
        """Keep the parts and the weights."""
        self.parts = _checked_parts(parts)
        self.dataset_len = sum(part.dataset_len for part in self.parts)
        count = sum(map(len, self.parts)) if num_samples is None else num_samples
        self.num_samples = _checked_count(count, "num_samples")
        self.schedule = [(0, _floats(weights))]
        later = changes or {}
        places = {self._place(key): _floats(value) for key, value in later.items()}
        self.schedule = [(0, places.pop(0, self.schedule[0][1])), *sorted(places.items())]
        self._made = self._make()

    def _make(self) -> Plan:
        parts = [(part.dataset_len, part.plan) for part in self.parts]
        return _refused(Plan.mixture, parts, self.schedule, self.num_samples)

    def _place(self, key: int | tuple[int, int]) -> int:
        epoch, sample = key if isinstance(key, tuple) else (key, 0)
        epoch, sample = _checked_count(epoch, "an epoch"), _checked_count(sample, "a sample")
        if sample > self.num_samples:
            raise FeedValueError(
                f"weights cannot change at sample {sample} of an epoch of {self.num_samples}"
            )
        return epoch * self.num_samples + sample

    def _at(self, place: int) -> str:
        epoch, sample = divmod(place, max(1, self.num_samples))
        return f"sample {sample} of epoch {epoch}"

    def set_weights(self, weights: Iterable[float], epoch: int, sample: int = 0) -> None:
        """Change the weights from this sample of this epoch on.

        It has to lie ahead: of what the loader has handed out, and of what its workers make
        already. What was to change after it is forgotten.
        """
        place = self._place((epoch, sample))
        if self._is_shared:
            raise FeedValueError(
                "this mixture is a shared loader's, and other jobs read it, too\n"
                "  give its changes of weights when it is made: Mixture(..., changes={3: [1, 1]})"
            )
        if place < self._until:
            raise FeedValueError(
                f"weights cannot change at {self._at(place)}: its samples are made already\n"
                f"  the first sample that is not: {self._at(self._until)}"
            )
        before, before_words, before_plan = self.schedule, self._words, self._made
        earlier = [change for change in self.schedule if change[0] < place]
        self.schedule, self._made = [*earlier, (place, _floats(weights))], None
        try:
            self.plan  # noqa: B018  made now, so that what is wrong is said here
        except FeedValueError:
            self.schedule, self._words, self._made = before, before_words, before_plan
            raise

    def state_dict(self) -> dict[str, Any]:
        """All weights, and from which sample of all epochs on they count."""
        return {"weights": [[start, list(weights)] for start, weights in self.schedule]}

    def restored(self, state: Mapping[str, Any], place: int) -> Mixture:
        """Return the mixture of the state: its weights up to the place, then what is to come."""
        try:
            saved = [(int(start), _floats(weights)) for start, weights in state["weights"]]
        except (KeyError, TypeError, ValueError):
            return self  # another order's state, as its words will say
        there = Mixture.__new__(Mixture)
        there.__dict__.update(self.__getstate__())
        there.schedule = saved
        if str(there) != state["order"]:
            return self
        mine = [change for change in self.schedule if change[0] <= place]
        past = [change for change in saved if change[0] <= place]
        if past[: len(mine)] != mine:
            raise FeedValueError(
                "the state is of a mixture with other weights than this loader's\n"
                f"  the state's: {_said(past)}\n  this loader's: {_said(mine)}\n"
                "  to change them, load the state and call the mixture's set_weights()"
            )
        later = [change for change in self.schedule if change[0] > place]
        there.schedule = past + (later or saved[len(past) :])
        there._made = None
        return there

    def take_over(self, restored: Order) -> None:
        """Become what ``restored`` returned."""
        if restored is not self:
            assert isinstance(restored, Mixture)
            self.schedule, self._made, self._until = restored.schedule, None, 0

    def dealt_out(self, place: int) -> None:
        """Note that all samples before this place of all epochs are on their way."""
        self._until = place

    def share(self) -> None:
        """Refuse further changes: a server has a copy."""
        self._is_shared = True


def _said(schedule: Sequence[tuple[int, list[float]]]) -> str:
    return ", ".join(
        f"{'' if start == 0 else f'from sample {start} on '}{' : '.join(f'{w:g}' for w in weights)}"
        for start, weights in schedule
    )


def _checked_parts(parts: Iterable[Order | Sized | int]) -> list[Order]:
    orders = [part if isinstance(part, Order) else Sequential(part) for part in parts]
    if not orders:
        raise FeedValueError("there are no parts\n  give orders, datasets or numbers of samples")
    return orders


def _checked_len(dataset: Sized | int) -> int:
    if isinstance(dataset, int):
        return _checked_count(dataset, "the dataset's number of samples")
    try:
        return len(dataset)
    except TypeError as error:
        raise FeedValueError(
            f"{dataset!r} is neither a dataset with a length nor a number of samples"
        ) from error


def _checked_count(number: Any, what: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__") or number.__index__() < 0:
        raise FeedValueError(f"{what} is a whole number from 0 on, not {number!r}")
    return int(number.__index__())


def _in_words(samples: int) -> str:
    return f"samples 0 to {samples - 1}" if samples else "no samples"


def _tensor(numbers: Iterable[Any], dtype: torch.dtype, what: str) -> torch.Tensor:
    try:
        given = torch.as_tensor(numbers if isinstance(numbers, Sized) else list(numbers))
        tensor = given.to("cpu", dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FeedValueError(f"{what} is not a list of numbers: {error}") from error
    is_whole = dtype.is_floating_point or not len(given) or not given.is_floating_point()
    if tensor.dim() != 1 or not is_whole:
        kind = "numbers" if dtype.is_floating_point else "whole numbers"
        raise FeedValueError(f"{what} is a list of {kind}, not {tuple(given.shape)} {given.dtype}")
    return tensor.clone()


def _floats(weights: Iterable[float]) -> list[float]:
    try:
        # A zero has no sign here, so that equal weights are written alike.
        return [float(weight) + 0.0 for weight in weights]
    except (TypeError, ValueError) as error:
        raise FeedValueError(f"weights are a list of numbers, not {weights!r}") from error


def _refused(make: Any, *arguments: Any) -> Plan:
    try:
        plan: Plan = make(*arguments)
    except ValueError as error:
        raise FeedValueError(str(error)) from None
    return plan
