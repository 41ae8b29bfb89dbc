"""Loaders with a name: one pool for all jobs that give it, in a server's process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from feedline._auto_size import PoolState
from feedline._core import Plan, pool_of_feed
from feedline._errors import FeedlineError, FeedValueError
from feedline._feed import Feed as PlainFeed
from feedline._feed import attach
from feedline._loader import seed_of_order
from feedline._place import checked_epoch, span_of_step
from feedline._share import share
from feedline._torch import Feed, FeedDataset
from feedline.orders import Mixture

# How a loader works in the server, and not what it loads: jobs may differ in it.
_HOW = (
    *("num_workers", "prefetch_factor", "timeout", "multiprocessing_context", "in_order"),
    *("persistent_workers", "workers"),
)
# What a job does with its batches for itself.
_OF_THE_JOB = ("batch_size", "drop_last", "pin_memory", "pin_memory_device", "with_ids")


_WITHOUT_WORKERS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "timeout": 0,
    "persistent_workers": False,
    "multiprocessing_context": None,
}


class MakeLoader:
    """Makes the loader in the server's process: what ``share`` takes.

    ``identified_by`` is what two jobs must agree on.
    """

    def __init__(self, arguments: dict[str, Any], *, serves: bool = True) -> None:
        """Keep a DataLoader's arguments; ``serves`` if not for a job that is alone."""
        self._arguments = arguments
        self._serves = serves
        self.identified_by = {
            key: value
            for key, value in arguments.items()
            # shuffle=False says nothing.
            if value is not None
            and key not in (*_HOW, *_OF_THE_JOB, "seed")
            and not (key == "shuffle" and value is False)
        }
        # Functions of libraries are compared by nothing else.
        for key in ("collate_fn", "worker_init_fn"):
            if (function := arguments[key]) is not None:
                name = getattr(function, "__qualname__", type(function).__qualname__)
                self.identified_by[f"name of {key}"] = name

    def __getstate__(self) -> dict[str, Any]:
        return {"_arguments": self._arguments, "_serves": self._serves}

    def __call__(self) -> Any:
        """Make it."""
        from feedline._dataloader import DataLoader

        loader: Any = DataLoader(**self._arguments)
        return loader._serve() if self._serves else loader


class NamedDataLoader(Feed):
    """A feed whose server loads by a plan: any step's samples can be named.

    What ``DataLoader(..., name=...)`` makes. A ``Feed`` in all other respects.
    """

    def __init__(self, dataset: FeedDataset, **keywords: Any) -> None:
        """Made by ``DataLoader``."""
        super().__init__(dataset, **keywords)
        self._arguments: dict[str, Any] | None = None

    @property
    def seed(self) -> int:
        """What the order and the draws of all epochs depend on."""
        seed = seed_of_order(self._attachment.core.order)
        if seed is None:
            raise TypeError(f'feed "{self.name}" is served by a loader without a plan')
        return seed

    def _own(self) -> Any:
        """Make the same loader in this process, with this job's batches."""
        from feedline._dataloader import DataLoader

        if self._arguments is None:
            raise TypeError(
                f'feed "{self.name}" was attached to by its name: its dataset is not known here\n'
                "  give the dataset that it was made with"
            )
        size = self._attachment.arguments["batch_size"] or self._arguments["batch_size"]
        own: dict[str, Any] = {"batch_size": size, "seed": self.seed, "shard": self._rank}
        return DataLoader(**{**self._arguments, **_WITHOUT_WORKERS, **own})

    @property
    def _rank(self) -> tuple[int, int] | None:
        shard = self._attachment.arguments["shard"]
        return None if shard is None else shard[:2]

    @property
    def pool_size(self) -> PoolState:
        """How many workers its server has, how many there may be, and why: asks the server."""
        pool = pool_of_feed(self.name)
        if pool is None:
            return PoolState(0, 0, "num_workers=0")
        return PoolState(pool["workers"], pool["most"], pool["words"])

    def stats(self) -> dict[str, Any]:
        """Counts of this consumer, and its server's pool of workers: ``None`` without an answer."""
        pool = None
        with contextlib.suppress(FeedlineError):
            pool = pool_of_feed(self.name)
        return {**super().stats(), "pool": pool}

    def samples(self, epoch: int, step: int) -> list[int]:
        """Return the numbers of the samples of a step of this job, past or to come.

        A step is one of this job's batch size, counted from the epoch's beginning. Without the
        dataset, what the feed says of its order must do: a ``TypeError``, if that has a list.
        """
        if self._arguments is not None:
            numbers: list[int] = self._own().samples(epoch, step)
            return numbers
        known, core = Plan.of_feed(self._attachment.core.order), self._attachment.core
        if known is None:
            raise TypeError(
                f'feed "{self.name}" was attached to by its name, and its order can\'t be looked '
                f"up without the dataset: {core.order}\n  give the dataset that it was made with"
            )
        seed, plan = known
        size, drop_last = core.batch_size or 1, self._attachment.arguments["drop_last"]
        first, count = span_of_step(len(plan), step, size, self._rank, drop_last=drop_last)
        return plan.numbers(seed, checked_epoch(epoch), first, count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next ``iter()`` go on where ``state_dict()`` was called.

        That may have been on a loader without a name, of the same seed. Nothing that was consumed
        is made again, if all jobs that are attached have asked for a later place of the epoch.
        """
        super().load_state_dict(self._checked_state(state))

    def _checked_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(state, Mapping) and "feed" not in state and {"seed", "order"} <= {*state}:
            if state.get("ahead"):
                raise FeedValueError(
                    "the state has samples that were handed out before others (in_order=False)\n"
                    "  only a loader without a name goes on there"
                )
            state = {**state, "order": f"seed {state['seed']}: {state['order']}"}
        there, here = state.get("order"), self._attachment.core.order
        if isinstance(there, str) and _is_of_another_order(there, here, state.get("sample")):
            raise FeedValueError(
                f'the state is of another order than feed "{self.name}"\'s\n'
                f"  the state's: {there}\n  the feed's: {here}"
            )
        return state

    def remake(self, epoch: int, step: int) -> Any:
        """Make a step's batch again, in this process: bit for bit what it was, or will be."""
        return self._own().remake(epoch, step)


def _is_of_another_order(there: str, here: str, sample: object) -> bool:
    """Whether a state's order surely is not the feed's.

    Its runs are compared when it joins; a mixture's weights may have changed since.
    """
    seed, _, order = there.partition(": ")
    own_seed, _, own_order = here.partition(": ")
    if order and own_order and order != own_order and "mixture" not in order:
        return True
    are_seeds = seed.startswith("seed ") and own_seed.startswith("seed ")
    # An epoch's beginning is the same place in any order.
    return are_seeds and seed != own_seed and sample != 0


def named(name: str, arguments: dict[str, Any], both: dict[str, Any]) -> Any:
    """Share a loader under a name, or attach to the one that runs."""
    # A batch sampler's batches are what they are.
    size = arguments["batch_size"] if arguments["batch_sampler"] is None else None
    of_the_job = {"batch_size": size, "drop_last": arguments["drop_last"], "_takes_whole": True}
    of_the_job |= {key: True for key in ("pin_memory", "with_ids") if arguments[key]}
    if arguments["dataset"] is None:
        unknown = [
            key
            for key in ("shuffle", "sampler", "batch_sampler", "collate_fn")
            if arguments.get(key)
        ]
        if unknown:
            raise FeedValueError(
                f"{unknown[0]}= belongs to the dataset, and there is none: "
                f'DataLoader(None, name="{name}") attaches to a feed that runs'
            )
        return _as_named(attach(name, **of_the_job, **both), None)
    if arguments["seed"] is not None:
        both = {**both, "seed": arguments["seed"]}
    if isinstance(arguments["sampler"], Mixture):
        arguments["sampler"].share()
    if os.environ.get("FEEDLINE_MODE") == "off":
        # The loader itself, which does all this for its one job.
        own: dict[str, Any] = {key: both.pop(key) for key in ("shard", "seed") if key in both}
        alone = MakeLoader({**arguments, **own}, serves=False)
        return share(alone, name, batch_size=size, **both)
    feed = share(MakeLoader(_of_server(arguments)), name, **of_the_job, **both)
    return _as_named(feed, arguments)


def _of_server(arguments: dict[str, Any]) -> dict[str, Any]:
    """A job drops its last batch and pins its memory for itself."""
    left_out = {"drop_last": False, "pin_memory": False, "with_ids": False}
    # The server serves one epoch after the other: the workers stay.
    return {**arguments, **left_out, "persistent_workers": bool(arguments["num_workers"])}


def _as_named(feed: Any, arguments: dict[str, Any] | None) -> Any:
    if not isinstance(feed, PlainFeed):
        return feed  # FEEDLINE_MODE=off: the loader itself
    plain = feed.dataset.feed if isinstance(feed, Feed) else feed
    loader = NamedDataLoader(FeedDataset(plain))
    loader._arguments = arguments
    return loader
