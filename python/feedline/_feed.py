"""A feed as a training script sees it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Self

# _batch_classes: the core needs it while it hands out batches, when no import may begin any more.
from feedline import _batch_classes as _batch_classes
from feedline._access import resolve_allow
from feedline._attachment import Attachment
from feedline._errors import (
    BatchSizeError,
    FeedlineError,
    FeedValueError,
    explained,
    option,
)
from feedline._fork_guard import no_fork
from feedline._shard import Shard, resolve_shard

# Far more than any memory holds.
_MOST_SAMPLES = 2**40 - 1

Join = Literal["auto", "now", "next"]
Format = Literal["torch", "numpy", "jax"]
Mode = Literal["cow", "readonly", "copy"]


def attach(
    name: str,
    *,
    batch_size: int | None = None,
    drop_last: bool = False,
    join: Join = "auto",
    timeout_secs: float = 30.0,
    format: Format | None = None,
    mode: Mode = "cow",
    reconnect_secs: float = 0.0,
    allow_pickle: bool = False,
    allow: Iterable[str | int] = (),
    transform: Callable[[Any], Any] | None = None,
    shard: Shard | None = None,
    pin_memory: bool = False,
    device: Any = None,
    with_ids: bool = False,
    _takes_whole: bool = False,
    _when_missing: Callable[[], object] | None = None,
) -> Feed:
    """Attach to a running feed; use the result where the loader was.

    Waits up to ``timeout_secs`` for the feed and its first batch (``FeedNotFoundError``,
    ``StalledError``), and later for a server that no longer answers (``StalledError``). Costs
    nothing and holds up nobody until the first batch is asked for. ``batch_size=None`` hands on the
    loader's own batches.

    Batches point straight into shared memory. Writing into one is allowed and private, but
    expensive the first few times; a consumer that keeps doing it gets copies. ``mode="readonly"``
    saves the check for such writes, and a write then crashes the process; ``mode="copy"`` copies
    every batch.

    When the server is lost, waits up to ``reconnect_secs`` for another one and goes on at its next
    sample: exactly, if the server has a ``state_file``, or if what the loader yields in an epoch
    depends on nothing but the epoch.

    Only servers of this process's user and of root are trusted; ``allow`` names others, as for
    ``Server``.

    ``shard=(rank, world_size)`` lets the processes of one data-parallel job share the feed;
    ``"auto"`` asks torch's process group, if there is one by now, or else RANK and WORLD_SIZE, if
    they are set. ``batch_size`` is the batch size of each rank. Together the ranks get every sample
    of an epoch once, and all get the same number of batches; only an epoch's last batch may be
    smaller, or one sample larger. The others wait for a rank that begins later (up to the server's
    ``stall_timeout_secs``). Batches that can't be cut are dealt out in turn, and those that are
    left over at an epoch's end are left out (``stats()["left_out"]``).

    ``join="auto"`` begins with the running epoch if its first sample is still there, else with the
    next, also after an epoch was broken off; ``"now"`` with the newest sample. ``"next"`` is like
    "auto", but goes on to the next epoch after breaking off: for loops that end each epoch early.
    A consumer that waits for an epoch to begin says so in the log after 5 s. If the length of the
    running epoch is not known, and no epoch ends within ``timeout_secs``, that is a
    ``StalledError``: the epoch may be endless.

    ``transform`` is called with each batch, in this process, when it is asked for: jobs on one feed
    can augment differently. It costs this job time, and no other job. It may write into the batch.
    Then tensors are copied to page-locked memory (``pin_memory``) and to ``device``.

    ``with_ids`` has each batch come as ``(batch, sample numbers)``, where the feed's loader is a
    ``feedline.DataLoader`` that is shared by a name, of a dataset whose samples have numbers.

    Where torch is in use, the result is a ``torch.utils.data.DataLoader``. It can be pickled; the
    copy attaches when it is first used, as another consumer.
    """
    if transform is not None and not callable(transform):
        raise FeedValueError(f"transform={transform!r} is not a function of a batch")
    moves = pin_memory or device is not None
    if moves and format not in (None, "torch"):
        raise FeedValueError(
            f'pin_memory and device are for torch tensors, not format="{format}"\n'
            '  leave them out, or say format="torch"'
        )
    arguments: dict[str, Any] = {
        "name": _checked_name(name),
        "batch_size": _checked_batch_size(batch_size),
        "drop_last": bool(drop_last),
        "join": join,
        "timeout_secs": _checked_secs("timeout_secs", timeout_secs),
        "format": format,
        "mode": mode,
        "reconnect_secs": _checked_secs("reconnect_secs", reconnect_secs),
        "allow_pickle": bool(allow_pickle),
        "allow": resolve_allow(allow),
        "shard": _checked_shard(shard, join),
        "with_ids": bool(with_ids),
        "takes_whole": _takes_whole,
    }
    if moves:
        arguments["format"] = "torch"
        try:
            with no_fork():
                from feedline._postprocess import postprocessor
        except ImportError as error:
            raise FeedlineError(
                "pin_memory and device are torch's, which is not installed here\n  leave them out"
            ) from error
        transform = postprocessor(transform, bool(pin_memory), device)
    feed = Feed(Attachment(arguments, transform, _when_missing))
    core = feed._attachment.core
    format = arguments["format"]
    if format == "torch" or (format is None and (core.yields_torch or "torch" in sys.modules)):
        torch_feed: Feed = _torch_face(name).torch_feed(feed)
        return torch_feed
    return feed


def _torch_face(name: str) -> Any:
    try:
        # A child that is forked while another thread imports a module can't import that module.
        with no_fork():
            from feedline import _torch
    except ImportError as error:
        raise FeedlineError(
            f'feed "{name}" yields torch tensors, and torch is not installed here\n'
            '  take them as NumPy arrays: format="numpy"'
        ) from error
    return _torch


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a feed's name is a str, not {name!r}")
    return name


def _checked_batch_size(batch_size: object) -> int | None:
    if batch_size is None:
        return None
    if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__"):
        raise BatchSizeError(
            f"batch_size={batch_size!r} is not a number of samples\n"
            "  give a positive int, or None for the loader's own"
        )
    size = int(batch_size.__index__())
    if size < 1:
        raise BatchSizeError(
            f"batch_size={size} is not possible\n"
            "  a batch has at least one sample; None is for the loader's own batches"
        )
    if size > _MOST_SAMPLES:
        raise BatchSizeError(
            f"batch_size={size} is not possible\n"
            f"  a batch has {_MOST_SAMPLES} samples at most; None is for the loader's own batches"
        )
    return size


def _checked_secs(keyword: str, secs: Any) -> float:
    """How long it is; the core refuses what is too long, or negative."""
    try:
        if not isinstance(secs, str | bytes):
            return float(secs)
    except (TypeError, ValueError, OverflowError):
        pass
    raise FeedValueError(f"{keyword}={secs!r} is not a time to wait\n  give a number of seconds")


def _checked_shard(shard: object, join: str) -> tuple[int, int, int] | None:
    resolved = resolve_shard(shard)
    if resolved is not None and join == "now":
        raise FeedValueError(
            'join="now" and shard= do not go together: ranks begin at different moments\n'
            '  leave join="auto", so that all begin with an epoch\'s first sample'
        )
    return resolved


class Feed:
    """A cursor on a feed. Each ``iter()`` is one epoch; leaving it early gives the cursor back.

    Safe to hold in a process that forks: a child that iterates attaches anew. So does a copy that
    was pickled.
    """

    def __init__(self, attachment: Attachment) -> None:
        """Made by ``attach``."""
        self._attachment = attachment

    @property
    def name(self) -> str:
        """The feed's name."""
        return self._attachment.name

    def __iter__(self) -> Iterator[Any]:
        """One epoch; nothing happens before its first batch is asked for."""
        return self._attachment.iterate()

    def __len__(self) -> int:
        """Batches per epoch, exactly; a ``TypeError`` until that is known (after one epoch)."""
        batches = self._attachment.core.batches_per_epoch()
        if batches is None:
            raise self._length_unknown()
        return batches

    def _length_unknown(self) -> TypeError:
        return TypeError(
            explained(
                f'the length of feed "{self.name}" is not known before its first epoch has ended',
                hint=("tell the server: ", option("samples")),
            )
        )

    def __bool__(self) -> bool:
        """Without this ``if feed:`` would ask for the length, which may not be known."""
        return True

    @property
    def epoch(self) -> int:
        """The feed's epoch that is being read, or is next."""
        return self._attachment.core.epoch

    def set_epoch(self, epoch: int) -> None:
        """Accepted because frameworks call it; the server decides which epoch comes."""

    def state_dict(self) -> dict[str, Any]:
        """Where this consumer is: the epoch and the number of its next sample there.

        Before the first batch that is sample 0 of epoch 0, whatever epoch the feed is in. The
        feed's name is there for people who read the state: it may be loaded under another name.
        "order" says what an epoch's order depends on: "sequential", "seed 7", or
        "run ..." for the server's run.
        """
        core = self._attachment.core
        epoch, sample = core.position()
        return {"feed": self.name, "epoch": epoch, "sample": sample, "order": core.order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next ``iter()`` go on where a ``state_dict()`` was taken.

        Its first batch raises ``SamplesGoneError`` if the feed no longer has those samples. A state
        from before the first batch loses nothing: it begins with epoch 0, or, where that is gone,
        like a feed that was just attached. A state replaces one that was loaded before.
        ``len(feed)`` stays that of a whole epoch.

        A state from the middle of an epoch is a place in that epoch's order. Where the feed's is
        another, or may be (a server that was started anew, without ``seed`` or ``state_file``), the
        log warns of it.
        """
        try:
            epoch, sample = int(state["epoch"]), int(state["sample"])
            # States that older versions saved have none.
            order = state.get("order")
            if not isinstance(order, str | None):
                raise TypeError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise FeedValueError(f"{state!r} is not the state_dict() of a feed") from None
        if not 0 <= epoch < 2**48 or not 0 <= sample < 2**48:
            raise FeedValueError(f'{state!r} is not a place in feed "{self.name}"')
        self._attachment.core.resume_at(epoch, sample, order)

    def stats(self) -> dict[str, Any]:
        """Counts of this consumer: samples, batches, time waited, leases, how batches are taken."""
        return self._attachment.core.stats()

    def close(self) -> None:
        """Detach from the feed. Batches that are still alive keep their bytes."""
        self._attachment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<feedline.Feed {self.name!r}, batch_size={self._attachment.arguments['batch_size']}>"
        )
