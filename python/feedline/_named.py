"""Loaders with a name: one pool for all jobs that give it, in a server's process."""

from __future__ import annotations

from typing import Any

from feedline._errors import FeedValueError
from feedline._feed import Feed as PlainFeed
from feedline._feed import attach
from feedline._loader import seed_of_run
from feedline._share import share
from feedline._torch import Feed, FeedDataset
from feedline.orders import Mixture

# How a loader works in the server, and not what it loads: jobs may differ in it.
_HOW = (
    *("num_workers", "prefetch_factor", "timeout", "multiprocessing_context", "in_order"),
    *("persistent_workers", "workers"),
)
# What a job does with its batches for itself.
_OF_THE_JOB = ("batch_size", "drop_last", "pin_memory")


class MakeLoader:
    """Makes the loader in the server's process: what ``share`` takes.

    ``identified_by`` is what two jobs must agree on.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Keep a DataLoader's arguments."""
        self._arguments = arguments
        self.identified_by = {
            key: value
            for key, value in arguments.items()
            if value is not None and key not in (*_HOW, *_OF_THE_JOB, "seed")
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"_arguments": self._arguments}

    def __call__(self) -> Any:
        """Make it."""
        from feedline._dataloader import DataLoader

        return DataLoader(**self._arguments)


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
        order = self._attachment.core.order
        kind, _, number = order.partition(":")[0].partition(" ")
        if kind not in ("seed", "run"):
            raise TypeError(f'feed "{self.name}" is served by a loader without a plan')
        return int(number) if kind == "seed" else seed_of_run(int(number, 16))

    def _own(self) -> Any:
        """Make the same loader in this process, with this job's batches."""
        from feedline._dataloader import DataLoader

        if self._arguments is None:
            raise TypeError(
                f'feed "{self.name}" was attached to by its name: its dataset is not known here\n'
                "  give the dataset that it was made with"
            )
        if self._attachment.arguments["shard"] is not None:
            raise TypeError(
                "which samples a rank has of a step is not known beforehand\n"
                "  a loader without shard= knows the samples of all ranks together"
            )
        size = self._attachment.arguments["batch_size"] or self._arguments["batch_size"]
        return DataLoader(
            **{**self._arguments, "batch_size": size, "seed": self.seed, "num_workers": 0}
        )

    def samples(self, epoch: int, step: int) -> list[int]:
        """Return the numbers of the samples of a step of this job, past or to come."""
        numbers: list[int] = self._own().samples(epoch, step)
        return numbers

    def remake(self, epoch: int, step: int) -> Any:
        """Make a step's batch again, in this process: bit for bit what it was, or will be."""
        return self._own().remake(epoch, step)


def named(name: str, arguments: dict[str, Any], both: dict[str, Any]) -> Any:
    """Share a loader under a name, or attach to the one that runs."""
    of_the_job = {"batch_size": arguments["batch_size"], "drop_last": arguments["drop_last"]}
    if arguments["pin_memory"]:
        of_the_job["pin_memory"] = True
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
