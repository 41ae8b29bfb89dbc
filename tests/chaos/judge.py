"""What a consumer may see: followed batch by batch, and `Wrong` at the first thing that is.

A sample's key is `epoch * EPOCH + index` (loaders.py), so where a batch stands shows in its keys.

    block, history   from its first sample to the epoch's end without a gap, epoch after epoch
    skip             the same, apart from what `stats()["skipped"]` counts
    replay           the whole of epoch 0, every time
    restart          as block, while the server is killed and comes back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from support.loaders import EPOCH

Policy = Literal["block", "history", "skip", "replay", "restart"]
POLICIES: tuple[Policy, ...] = ("block", "history", "skip", "replay", "restart")


class Wrong(AssertionError):
    """A sample was lost, repeated, out of order, or not what the loader yielded."""


class Judge:
    """Follows one consumer of a feed whose epochs have `samples` samples."""

    def __init__(
        self,
        policy: Policy,
        samples: int,
        batch_size: int | None,
        *,
        join: str = "auto",
        drop_last: bool = False,
        source_batch: int = 10,
    ) -> None:
        self.policy = policy
        self.samples = samples
        self.batch_size = batch_size
        self.join = join
        self.drop_last = drop_last
        self.source_batch = source_batch
        self.epoch = -1
        """The epoch that was last seen."""
        self.finished = -1
        """The epoch that was last read to its end."""
        self.index: int | None = None
        """Where the next batch begins; None between two epochs."""
        self.skipped = 0
        self.owed = 0
        """Skipped at the end of the last epoch, and not counted yet."""
        self.is_resumed = False
        """A state was loaded, and nothing taken since."""
        self.is_member = False
        """It has read its last epoch to the end and kept its place."""
        self.epochs = 0
        self.batches = 0

    def begin(self, *, anew: bool) -> None:
        """`iter()`. `anew`: it has left the epoch before."""
        self.is_member = self.is_member and not anew
        self.is_resumed = False
        self.index = None

    def excuse(self) -> None:
        """It may have been cut off since the last epoch's end."""
        self.is_member = False

    def resume(self, epoch: int, index: int) -> None:
        """The next batch is this one, or the next epoch's first: a state was loaded."""
        self.epoch, self.index = epoch, index
        self.epoch, self.index = self.places()[-1]
        self.is_resumed = True

    def batch(self, keys: Sequence[int], *, skipped: int = 0) -> None:
        """Judge a batch. `skipped` is what `stats()` counts after it."""
        if not keys:
            raise Wrong("an empty batch")
        first, last = int(keys[0]), int(keys[-1])
        if list(keys) != list(range(first, first + len(keys))):
            raise Wrong(f"a batch with gaps in it: {list(keys)}")
        epoch, index = divmod(first, EPOCH)
        end = last % EPOCH + 1
        if end > self.samples or last // EPOCH != epoch:
            raise Wrong(f"a batch across an epoch's end: {first} to {last}")
        size = self.batch_size or self.source_batch - index % self.source_batch
        if len(keys) != size and (end != self.samples or len(keys) > size or self.drop_last):
            raise Wrong(f"a batch of {len(keys)} instead of {size} at {first}")
        jumped = self._jump(skipped)
        if self.index is None:
            self._enter(epoch, index, jumped)
        elif self._place(epoch, index) != self._place(self.epoch, self.index) + jumped:
            here = f"{self.index} of epoch {self.epoch}"
            raise Wrong(f"a batch at {index} of epoch {epoch}, after {here} ({jumped} skipped)")
        elif epoch != self.epoch and not self.is_resumed:
            raise Wrong(f"a batch of epoch {epoch} among those of epoch {self.epoch}")
        self.epoch, self.index, self.is_resumed = epoch, end, False
        self.batches += 1

    def end(self, *, skipped: int = 0) -> None:
        """`StopIteration`."""
        jumped = self._jump(skipped)
        if self.index is not None:
            missing = self.samples - self.index - jumped
            # Many epochs behind, it can't know where this one ended: the rest counts later.
            dropped = self.drop_last and missing < (self.batch_size or self.source_batch)
            if missing < 0 or (missing and self.policy != "skip" and not dropped):
                raise Wrong(f"epoch {self.epoch} ended at {self.index} of {self.samples}")
            self.owed = 0 if dropped else missing
        elif self.policy != "skip" and self.join == "auto":
            raise Wrong(f"an empty epoch after epoch {self.epoch}")
        else:
            # Nothing of an epoch was left for it: which one that was doesn't show.
            self.is_member = False
            return
        self.index = None
        self.finished = self.epoch
        self.is_member = True
        self.epochs += 1

    def places(self) -> list[tuple[int, int]]:
        """Where a state may say that the next batch is: an epoch's end is the next one's start."""
        assert self.index is not None
        left = self.samples - self.index
        is_over = not left or (self.drop_last and left < (self.batch_size or self.source_batch))
        here = (self.epoch, self.index)
        return [here, (0 if self.policy == "replay" else self.epoch + 1, 0)] if is_over else [here]

    def _place(self, epoch: int, index: int) -> int:
        return epoch * self.samples + index

    def _jump(self, skipped: int) -> int:
        jumped, self.skipped = skipped - self.skipped, skipped
        if jumped < 0 or (jumped and self.policy != "skip"):
            raise Wrong(f"{jumped} samples were skipped under {self.policy}")
        return jumped

    def _enter(self, epoch: int, index: int, jumped: int) -> None:
        """Judge the first batch of an epoch."""
        at = f"epoch {epoch} was entered at sample {index}"
        if self.policy == "replay":
            if epoch or (index and (self.join == "auto" or self.is_member)):
                raise Wrong(f"{at} of a replay")
        elif self.is_member:
            if (epoch - self.epoch - 1) * self.samples + index + self.owed != jumped:
                raise Wrong(f"{at} after epoch {self.epoch} ({jumped} skipped)")
        else:
            if self.join == "auto" and index != jumped % self.samples:
                raise Wrong(f"{at} ({jumped} skipped)")
            # A server that comes back may be a little behind; a new consumer begins there.
            is_back = epoch < self.epoch or epoch == self.finished
            if is_back and self.policy != "restart":
                raise Wrong(f"{at}, back from epoch {self.epoch}")
