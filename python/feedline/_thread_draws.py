"""Random draws of datasets whose samples are made by several threads of one process.

Python's, NumPy's and torch's global generators belong to all threads of a process, the training
loop's included. Whoever seeds one for a sample changes what all others draw, so they are left alone
here:

- What a sample draws by torch's functions comes from a generator of its thread, seeded as a worker
  process would seed its own: the same numbers. torch lets a thread put arguments into its own calls
  (``TorchFunctionMode``); here it is ``generator=``.
- A sample that draws from a global generator itself is refused. Whether one does is seen in the
  generators' memory. The training loop may draw there, too. So a sample during which one has
  changed is made again; the first of them in a trial: while the loop waits for a batch, and with
  the generators in another state, so that one that seeds them itself is seen as well.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from feedline._core import SharedGenerators
from feedline._errors import FeedValueError

T = TypeVar("T")

_NAMES = (
    "Python's random (random.random() and the like)",
    "torch's default generator (torch.manual_seed(), or a function that draws inside another one)",
    "NumPy's global generator (np.random.rand() and the like)",
)
# If a generator changes in so many trials, it is the dataset that draws.
_CERTAIN = 3
# After so many trials without a change, a sample that is made again without one will do.
_TRIALS = 4
# Beside a training loop that draws all the time, so many are in vain: then there is a trial again.
_RETRIES = 2
_LOOK_EVERY_SECS = 0.1
# The training loop goes on if a sample that is tried out takes longer.
_PATIENCE_SECS = 1.0
_SEED_BITS = 63
_PYTHONS = random._inst

_FUNCTIONS = (
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
    *("normal", "bernoulli", "multinomial", "poisson", "binomial"),
)
_METHODS = (
    *("uniform_", "normal_", "random_", "bernoulli_", "cauchy_", "exponential_", "geometric_"),
    *("log_normal_", "bernoulli", "multinomial"),
)
_DRAWING = frozenset(
    [getattr(torch, name) for name in _FUNCTIONS]
    + [getattr(torch.Tensor, name) for name in _METHODS]
)


class Closed(Exception):
    """The pool was closed meanwhile."""


class _Trial:
    """The generators' states while a sample is tried out. Whoever takes them puts them back."""

    def __init__(self) -> None:
        """Take the states down, and have each generator in another one."""
        self._is_over = threading.Lock()
        self._states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        # Of a sample that seeds a generator itself, too, something changes now.
        random.random()
        np.random.rand()
        torch.randperm(2)

    def end(self) -> bool:
        """Put them back; False if somebody has."""
        if not self._is_over.acquire(blocking=False):
            return False
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])
        torch.set_rng_state(self._states[2])
        return True


class Turns:
    """Whether the training loop runs, or waits for a batch: then it draws nothing."""

    def __init__(self) -> None:
        """Begin while it runs."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waits = False
        self._trial: _Trial | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._waits = True
            self._changed.notify_all()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            try:
                self._end_any_trial()
            finally:
                self._waits = False

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Have no trial meanwhile."""
        with self._lock:
            self._end_any_trial()
            yield

    def _end_any_trial(self) -> None:
        try:
            self._changed.wait_for(lambda: self._trial is None, _PATIENCE_SECS)
        finally:
            if self._trial is not None:
                self._trial.end()

    def begin_trial(self, is_closed: Callable[[], bool]) -> _Trial:
        """Wait until the training loop does, and have it wait until the trial is over."""
        with self._lock:
            while not (self._waits and self._trial is None):
                self._changed.wait(_LOOK_EVERY_SECS)
                if is_closed():
                    raise Closed
            self._trial = _Trial()
            return self._trial

    def end_trial(self, trial: _Trial) -> bool:
        """Put everything back as it was. False if the training loop could not wait so long."""
        with self._lock:
            self._trial = None
            self._changed.notify_all()
            return trial.end()


class SharedDraws:
    """What the threads of a pool know together."""

    def __init__(self) -> None:
        """Nobody may draw meanwhile: called where the training loop asks for a batch."""
        self.turns = Turns()
        self._generators = SharedGenerators()
        self._passed = 0
        self.are_seen = False
        """Whether a sample has drawn, by torch's functions."""

    def make(self, make: Callable[[], T], dataset: str, is_closed: Callable[[], bool]) -> T:
        """Make something until it is certain that it drew from no generator that others have."""
        tries = failed = 0
        while True:
            is_trial = tries > 0 and (self._passed < _TRIALS or tries > _RETRIES)
            trial = self.turns.begin_trial(is_closed) if is_trial else None
            is_undisturbed = False
            try:
                before = self._look()
                made = make()
                after = self._look()
            finally:
                if trial is not None:
                    is_undisturbed = self.turns.end_trial(trial)
            if before == after:
                self._passed += is_undisturbed
                return made
            tries += 1
            failed += is_undisturbed
            if failed == _CERTAIN:
                raise _refusal(dataset, before, after)
            if is_closed():
                raise Closed

    def _look(self) -> list[Any]:
        states: list[Any] = list(self._generators.look())
        # Gaussian numbers come in pairs; the second one of a pair changes nothing but this.
        states[0] = states[0], getattr(_PYTHONS, "gauss_next", None)
        if len(states) == len(_NAMES):
            numpys = np.random.get_state(legacy=False)
            states[2] = states[2], numpys["has_gauss"], numpys["gauss"]
        return states


def _refusal(dataset: str, before: list[Any], after: list[Any]) -> FeedValueError:
    pairs = zip(_NAMES, before, after, strict=False)
    changed = [name for name, was, now in pairs if was != now]
    return FeedValueError(
        f'workers="threads": samples of {dataset} draw from {" and ".join(changed)}, which all '
        "threads of a process have in common\n"
        "  draw with torch.rand() and its like, or from a generator that is seeded with them:\n"
        "  np.random.default_rng(int(torch.randint(2**62, ()))); or leave workers= out"
    )


class ThreadDraws(TorchFunctionMode):
    """One thread's generator, in place of torch's own while samples are made."""

    def __init__(self, shared: SharedDraws) -> None:
        """Begin unseeded."""
        super().__init__()
        self._shared = shared
        self._generator = torch.Generator()
        self._seed = 0
        self._is_seeded = False
        # How often it was seeded, or could have been.
        self.count = 0

    def begin(self, seed: int) -> None:
        """Have what is drawn from now on depend on this number."""
        self._seed, self._is_seeded = seed, False
        self.count += 1

    def use(self) -> int:
        """Note that a sample draws, and return what that depends on."""
        self._shared.are_seen = True
        return self._seed

    @property
    def generator(self) -> torch.Generator:
        """The generator, seeded for the sample."""
        if not self._is_seeded:
            self._generator.manual_seed(self.use() & ((1 << _SEED_BITS) - 1))
            self._is_seeded = True
        return self._generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch's; one that draws gets the thread's generator."""
        kwargs = kwargs or {}
        if func in _DRAWING and kwargs.get("generator") is None and _is_on_cpu(args, kwargs):
            kwargs = {**kwargs, "generator": self.generator}
        return func(*args, **kwargs)


def _is_on_cpu(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device).type == "cpu"
    of = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
    return of is None or of.device.type == "cpu"


class Generators:
    """What ``get_worker_info().rng`` is in a thread: seeded for each sample, once it is used."""

    def __init__(self, draws: ThreadDraws) -> None:
        """Seed by what the thread's draws are seeded by."""
        self._draws = draws
        self._made: dict[type, Any] = {}
        self._count = 0

    def _seeded(self, kind: type, make: Callable[[int], Any]) -> Any:
        if self._count != self._draws.count:
            self._made, self._count = {}, self._draws.count
        if kind not in self._made:
            self._made[kind] = make(self._draws.use())
        return self._made[kind]

    @property
    def random_generator(self) -> random.Random:
        """Python's."""
        generator: random.Random = self._seeded(random.Random, random.Random)
        return generator

    @property
    def torch_generator(self) -> torch.Generator:
        """Torch's."""
        return self._draws.generator

    @property
    def numpy_generator(self) -> np.random.Generator:
        """NumPy's."""
        generator: np.random.Generator = self._seeded(np.random.Generator, np.random.default_rng)
        return generator
