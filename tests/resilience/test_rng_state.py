"""The random generators' states at epochs' beginnings, kept for a server that goes on."""

from __future__ import annotations

import json
import logging
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feedline._rng_state import RngStates, load


class Sampler:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)


class Loader:
    """The part of a DataLoader that code which collects its generators sees."""

    def __init__(self, seed: int = 0) -> None:
        self.sampler = Sampler(seed)


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def draw(loader: Loader) -> tuple[Any, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        np.random.standard_normal(),
        torch.rand(3).tolist(),
        torch.rand(3, generator=loader.sampler.generator).tolist(),
    )


def go_on(path: Path, loader: Loader) -> RngStates:
    states = load(path)
    assert states is not None
    return RngStates(path, loader, states)


def test_an_epoch_that_was_begun_draws_the_same_again(tmp_path: Path) -> None:
    path, loader = tmp_path / "train.rng", Loader()
    seed_all(1)
    first = RngStates(path, loader, {})
    drawn = []
    for epoch in range(3):
        first.begin(epoch)
        # An odd number of normal draws: one is kept for later, and belongs to the state.
        drawn.append(draw(loader))
    again, other = Loader(seed=5), Loader(seed=6)
    seed_all(2)
    second = go_on(path, again)
    second.begin(1)
    assert draw(again) == drawn[1]
    second.begin(2)
    assert draw(again) == drawn[2]
    seed_all(3)
    go_on(path, other).begin(0)
    assert draw(other) == drawn[0]


def test_the_numpy_generator_may_be_any(tmp_path: Path) -> None:
    path, before = tmp_path / "train.rng", np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(3))
    try:
        RngStates(path, None, {}).begin(0)
        drawn = np.random.random(4).tolist()
        np.random.random(9)
        states = load(path)
        assert states is not None
        RngStates(path, None, states).begin(0)
        assert np.random.random(4).tolist() == drawn
    finally:
        np.random.mtrand.set_bit_generator(before)


def kept(path: Path) -> list[int]:
    return [int(epoch) for epoch in json.loads(path.read_text())["epochs"]]


def test_only_the_last_few_epochs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.rng"
    states = RngStates(path, None, {})
    for epoch in range(20):
        states.begin(epoch)
    assert kept(path) == list(range(12, 20))


def test_what_the_slowest_consumer_needs_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.rng"
    states = RngStates(path, None, {}, slowest_epoch=lambda: 3)
    for epoch in range(20):
        states.begin(epoch)
    assert kept(path) == list(range(3, 20))


def test_an_earlier_epoch_is_kept_beside_later_ones(tmp_path: Path) -> None:
    """With states of epochs 13 to 20, epoch 0 was forgotten as soon as it was begun."""
    path, loader = tmp_path / "train.rng", Loader()
    before = RngStates(path, loader, {})
    for epoch in range(13, 21):
        before.begin(epoch)
    go_on(path, loader).begin(0)
    drawn = draw(loader)
    assert 0 in kept(path)
    go_on(path, loader).begin(0)
    assert draw(loader) == drawn


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "train.rng"
    RngStates(path, None, {}).begin(0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_there_may_be_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(tmp_path / "train.rng") is None
    assert not caplog.messages


def whole(path: Path) -> bytes:
    RngStates(path, None, {}).begin(0)
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "list", "words", "pickle", "folder"])
def test_what_cannot_be_read_is_left_out_with_a_word(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "train.rng"
    good = whole(path)
    state = json.loads(good)
    state["epochs"]["0"]["random"]["words"] = "AAAA"
    contents = {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "noise": bytes(range(256)),
        "list": b"[1, 2]",
        "words": json.dumps(state).encode(),
        "pickle": b"\x80\x04\x95",
    }
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(contents[damage])
    assert load(path) is None
    assert [str(path) in message for message in caplog.messages] == [True]


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "train.rng"
    whole(elsewhere)
    path.symlink_to(elsewhere)
    assert load(path) is None
    assert caplog.messages


def test_what_cannot_be_written_is_said_once_and_never_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    path = gone / "train.rng"
    states = RngStates(path, None, {})
    states.begin(0)
    path.unlink()
    gone.rmdir()
    with caplog.at_level(logging.WARNING, "feedline"):
        for epoch in range(1, 5):
            states.begin(epoch)
    assert len(caplog.messages) == 1
    assert str(path) in caplog.messages[0]
    assert "No such file" in caplog.messages[0]


def test_states_that_are_out_of_date_are_removed(tmp_path: Path) -> None:
    """A server that went on with them would draw something else in the epochs since."""
    path = tmp_path / "train.rng"
    states = RngStates(path, None, {})
    states.begin(0)
    # Nobody, not even root, can open a folder to write to it.
    path.with_suffix(".rng-new").mkdir()
    states.begin(1)
    assert not path.exists()
