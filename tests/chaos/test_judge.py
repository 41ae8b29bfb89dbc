"""The judge can say no: each thing that may go wrong, by itself."""

from __future__ import annotations

import pytest

from chaos.judge import Judge, Policy, Wrong
from support.loaders import EPOCH


def keys(epoch: int, start: int, stop: int) -> list[int]:
    return list(range(epoch * EPOCH + start, epoch * EPOCH + stop))


def judge(policy: Policy = "block", *, join: str = "auto") -> Judge:
    """Make a judge of a consumer of 4, in epochs of 10, that has read epoch 3."""
    judge = Judge(policy, 10, 4, join=join)
    judge.begin(anew=True)
    epoch = 0 if policy == "replay" else 3
    for start, stop in ((0, 4), (4, 8), (8, 10)):
        judge.batch(keys(epoch, start, stop))
    judge.end()
    return judge


@pytest.mark.parametrize("policy", ["block", "history", "skip"])
def test_epoch_after_epoch(policy: Policy) -> None:
    following = judge(policy)
    following.begin(anew=False)
    following.batch(keys(4, 0, 4))
    following.begin(anew=True)
    following.batch(keys(6, 0, 4))
    assert (following.epochs, following.batches) == (1, 5)


def test_a_replay_gives_the_same_epoch_again() -> None:
    following = judge("replay")
    following.begin(anew=False)
    following.batch(keys(0, 0, 4))


def test_what_was_skipped_adds_up() -> None:
    following = judge("skip")
    following.begin(anew=False)
    following.batch(keys(5, 3, 7), skipped=13)
    following.end(skipped=16)
    following.begin(anew=False)
    following.batch(keys(6, 0, 4), skipped=16)
    # Long after its end: what was left of the epoch is counted later.
    following.end(skipped=16)
    following.begin(anew=False)
    following.batch(keys(9, 2, 6), skipped=16 + 6 + 20 + 2)


def test_a_state_at_an_epochs_end_is_the_next_ones_start() -> None:
    for start, first in ((8, keys(4, 0, 4)), (10, keys(4, 0, 4)), (4, keys(3, 4, 8))):
        following = Judge("block", 10, 4, drop_last=True)
        following.resume(3, start)
        following.batch(first)
    following = Judge("block", 10, 4, drop_last=True)
    following.resume(3, 4)
    with pytest.raises(Wrong):
        following.batch(keys(4, 0, 4))


END: list[int] = []
WRONG: dict[str, tuple[Policy, int, list[list[int]]]] = {
    "a gap": ("block", 0, [keys(4, 0, 4), keys(4, 5, 9)]),
    "a repeated batch": ("block", 0, [keys(4, 0, 4), keys(4, 0, 4)]),
    "a gap inside": ("block", 0, [[*keys(4, 0, 3), *keys(4, 4, 5)]]),
    "a short batch": ("block", 0, [keys(4, 0, 3)]),
    "a lost tail": ("block", 0, [keys(4, 0, 4), END]),
    "a lost epoch": ("block", 0, [keys(5, 0, 4)]),
    "a repeated epoch": ("block", 0, [keys(3, 0, 4)]),
    "a lost beginning": ("block", 0, [keys(4, 4, 8)]),
    "an empty epoch": ("block", 0, [END]),
    "two epochs in one batch": ("block", 0, [keys(4, 8, 12)]),
    "something skipped": ("history", 2, [keys(4, 2, 6)]),
    "skipped and not counted": ("skip", 3, [keys(4, 4, 8)]),
    "counted and not skipped": ("skip", 3, [keys(4, 0, 4)]),
    "a tail skipped and not counted": ("skip", 0, [keys(4, 0, 4), END, keys(5, 0, 4)]),
    "another epoch in a replay": ("replay", 0, [keys(1, 0, 4)]),
}


def take(following: Judge, step: list[int], skipped: int) -> None:
    if step:
        following.batch(step, skipped=skipped)
    else:
        following.end(skipped=skipped)
        following.begin(anew=False)


@pytest.mark.parametrize("what", WRONG)
def test_it_notices(what: str) -> None:
    policy, skipped, steps = WRONG[what]
    following = judge(policy)
    following.begin(anew=False)
    for step in steps[:-1]:
        take(following, step, skipped)
    with pytest.raises(Wrong):
        take(following, steps[-1], skipped)


def test_a_dropped_tail_is_no_loss() -> None:
    following = Judge("block", 10, 4, drop_last=True)
    following.begin(anew=True)
    following.batch(keys(3, 0, 4))
    following.batch(keys(3, 4, 8))
    following.end()
    following.begin(anew=False)
    following.batch(keys(4, 0, 4))
    with pytest.raises(Wrong):
        following.end()
    with pytest.raises(Wrong):
        following.batch(keys(4, 4, 7))


def test_the_loaders_own_batches() -> None:
    following = Judge("block", 10, None, source_batch=4, join="now")
    following.begin(anew=True)
    following.batch(keys(3, 2, 4))
    following.batch(keys(3, 4, 8))
    following.batch(keys(3, 8, 10))
    following.end()
    following.begin(anew=False)
    with pytest.raises(Wrong):
        following.batch(keys(4, 0, 3))


def test_who_comes_anew_begins_with_an_epoch_and_never_goes_back() -> None:
    for wrong in (keys(4, 4, 8), keys(3, 0, 4), keys(2, 0, 4)):
        following = judge()
        following.begin(anew=True)
        with pytest.raises(Wrong):
            following.batch(wrong)
    following = judge(join="now")
    following.begin(anew=True)
    following.batch(keys(4, 3, 7))
