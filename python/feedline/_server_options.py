"""The keywords of ``Server`` and ``serve``. Written by ``make options``: never edited by hand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypedDict


class ServerOptions(TypedDict, total=False):
    """What may be given, as ``crates/feedline-core/src/options/mod.rs`` declares it."""

    epochs: int | None
    """How many epochs; without end if not given.

    Not given: None.
    """
    samples: int | None
    """The epoch's length in samples, where the loader doesn't know it.

    Not given: None.
    """
    wait_for: int
    """Hand out the first sample once this many consumers have asked for one.

    Not given: 1.
    """
    ring: str | int | None
    """The ring's size: "512MB", or a number of samples.

    Not given: None.
    """
    history: float | str
    """How much to keep for late and slow jobs: a share of the epoch (0.5) or a size ("2GB").

    Not given: 0.02.
    """
    history_dir: str | os.PathLike[str] | None
    """A folder for ring and history, where memory isn't enough.

    Not given: None.
    """
    replay: bool
    """Load one epoch, and serve it again and again.

    Not given: False.
    """
    lag: Literal["block", "history", "skip"]
    """Who waits for whom.

    Not given: 'block'.
    """
    epochs_ahead: int
    """How many epochs the loader may be ahead of the slowest job.

    Not given: 2.
    """
    state_file: str | os.PathLike[str] | None
    """A file that lets the next server go on in mid-epoch.

    Not given: None.
    """
    stall_timeout_secs: float
    """How long a job that stands still may hold up the others.

    Not given: 60.0.
    """
    loader_warn_secs: float | None
    """Warn when the loader has not yielded a batch for this long.

    Not given: 30.0.
    """
    loader_timeout_secs: float | None
    """Give up when the loader has not yielded a batch for this long.

    Not given: None.
    """
    linger_secs: float | None
    """End this long after the last consumer has left.

    Not given: None.
    """
    seed: int | None
    """Make an epoch's order and random draws depend only on this seed and the epoch's number.

    Not given: None.
    """
    allow_pickle: bool
    """Carry Python objects of other types too, pickled.

    Not given: False.
    """
    whole_batches: bool
    """Hand on the loader's batches as they are, never cut.

    Not given: False.
    """
    allow: Iterable[str | int]
    """Allow another user, by name or uid, or a group, as @NAME. May be given again.

    Not given: ().
    """
    metrics_port: int | None
    """Answer Prometheus on this port of 127.0.0.1.

    Not given: None.
    """
    metrics_file: str | os.PathLike[str] | None
    """Append a line of JSON to this file every few seconds.

    Not given: None.
    """
