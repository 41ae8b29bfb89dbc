"""Runs of a shared feed: who goes on with what a killed server had begun, and who begins anew."""

from __future__ import annotations

import os
import random
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from support.child import hear, say
from support.processes import processes_with
from support.waiting import eventually

pytestmark = [pytest.mark.timeout(120, method="thread"), pytest.mark.usefixtures("servers_leave")]

SAMPLES = 60


def shuffled(seed: int | None = None) -> Any:
    """A loader that is seeded when it is made: from the environment, which no feed compares."""

    class Loader:
        def __iter__(self) -> Any:
            order = list(range(SAMPLES))
            random.shuffle(order)
            for first in range(0, SAMPLES, 6):
                yield np.array(order[first : first + 6])

    random.seed(int(os.environ["SEED"]) if seed is None else seed)
    return Loader()


def orders(seed: int, epochs: int = 1) -> list[list[int]]:
    """What a fresh run with this seed yields."""
    state = random.getstate()
    loader = shuffled(seed)
    found = [[int(i) for batch in loader for i in batch] for _ in range(epochs)]
    random.setstate(state)
    return found


def make_loader() -> Any:
    return shuffled()


def make_another() -> Any:
    return shuffled()


def follow(
    seed: int,
    by: str = "share",
    make: Callable[[], Any] = make_loader,
    key: str | None = None,
) -> None:
    """Begin an epoch, and read what is left of it at the word "rest"."""
    os.environ["SEED"] = str(seed)
    options: dict[str, Any] = {"batch_size": 6, "reconnect_secs": 60.0}
    if by == "share":
        served: dict[str, Any] = {"history": 1.0, "linger_secs": 0.2}
        feed = feedline.share(make, "train", key=key, **served, **options)
    else:
        feed = feedline.attach("train", **options)
    batches = iter(feed)
    found = [int(i) for i in next(batches)]
    say("began", server=feed.stats()["server_pid"])
    if hear() == "rest":
        found += [int(i) for batch in batches for i in batch]
        say("rest", ids=found)


def follow_another(seed: int, key: str | None = None) -> None:
    follow(seed, make=make_another, key=key)


def kill(pid: int) -> None:
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_over(watched))
    os.close(watched)


def is_over(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return True
    return False


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"train.*.{suffix}"))


def test_a_run_that_all_have_left_is_forgotten(start: Start, folder: Path) -> None:
    """Server and job are killed in epoch 0; the next run's own seed counts."""
    first = start(follow, seed=1)
    server = first.expect("began")["server"]
    (before,) = files(folder, "rng")
    first.kill()
    kill(server)
    second = start(follow, seed=2)
    second.expect("began")
    (now,) = files(folder, "rng")
    assert now != before
    assert second.ask("rest")["ids"] == orders(2)[0]


@pytest.mark.parametrize("by", ["share", "attach"])
def test_a_run_in_which_somebody_is_left_goes_on(by: str, start: Start, folder: Path) -> None:
    """Even if another job of the same script is the one that starts the server."""
    first = start(follow, seed=1)
    server = first.expect("began")["server"]
    left = start(follow, seed=1, by=by)
    left.expect("began")
    before = files(folder, "run")
    first.kill()
    kill(server)
    third = start(follow, seed=1)
    third.expect("began")
    assert files(folder, "run") == before
    assert left.ask("rest")["ids"] == orders(1)[0]
    third.tell("rest")
    third.expect("rest")


def test_another_loader_is_another_run_and_nobody_goes_on_with_it_in_silence(start: Start) -> None:
    first = start(follow, seed=1)
    server = first.expect("began")["server"]
    kill(server)
    second = start(follow_another, seed=2)
    second.expect("began")
    first.tell("rest")
    first.expect_error(feedline.ServerLostError, "another run", "epoch 0 after sample 5")
    assert second.ask("rest")["ids"] == orders(2)[0]


def test_another_run_may_be_gone_on_with_between_epochs(start: Start) -> None:
    """Its loader is the same, by its key, and is served otherwise."""
    first = start(read_epochs, seed=1)
    server = first.expect("epoch")["server"]
    kill(server)
    second = start(follow_another, seed=2, key="the same")
    second.expect("began")
    first.tell("go on")
    second.tell("rest")
    assert sorted(first.expect("epoch")["ids"]) == list(range(SAMPLES))
    second.expect("rest")


def read_epochs(seed: int) -> None:
    os.environ["SEED"] = str(seed)
    options: dict[str, Any] = {"batch_size": 6, "linger_secs": 0.2, "reconnect_secs": 60.0}
    feed = feedline.share(make_loader, "train", key="the same", **options)
    for _ in range(2):
        found = [int(i) for batch in feed for i in batch]
        say("epoch", ids=found, server=feed.stats()["server_pid"])
        hear()


def test_states_that_were_lost_make_another_run(start: Start, folder: Path) -> None:
    first = start(follow, seed=1)
    server = first.expect("began")["server"]
    (states,) = files(folder, "rng")
    kill(server)
    states.write_bytes(b"garbage")
    first.tell("rest")
    first.expect_error(feedline.ServerLostError, "another run")


def test_a_file_that_is_no_run_of_ours_is_left_alone(start: Start, folder: Path) -> None:
    """Whatever stands in the folder, a feed begins."""
    (folder / "train.0123456789abcdef.rng").mkdir()
    (folder / "train.share").write_text("garbage")
    first = start(follow, seed=1)
    first.expect("began")
    assert first.ask("rest")["ids"] == orders(1)[0]
    (folder / "train.0123456789abcdef.rng").rmdir()


def test_forked_children_do_not_keep_a_run(
    start: Start, folder: Path, reap: Callable[[], None]
) -> None:
    """Neither those of a job, nor a loader's."""
    first = start(follow_with_a_child, seed=1)
    report = first.expect("forked")
    first.kill()
    kill(report["server"])
    assert report["child"] in processes_with(str(folder))
    before = files(folder, "run")
    second = start(follow_beside_a_child, seed=2)
    second.expect("began")
    assert files(folder, "run") != before
    assert second.ask("rest")["ids"] == orders(2)[0]
    reap()


def make_loader_with_a_child() -> Any:
    if "PARENT" in os.environ and os.fork() == 0:
        signal.pause()
    return shuffled()


def follow_beside_a_child(seed: int) -> None:
    follow(seed, make=make_loader_with_a_child)


def follow_with_a_child(seed: int) -> None:
    os.environ.update(SEED=str(seed), PARENT="yes")
    options: dict[str, Any] = {"history": 1.0, "linger_secs": 0.2, "reconnect_secs": 60.0}
    feed = feedline.share(make_loader_with_a_child, "train", batch_size=6, **options)
    next(iter(feed))
    child = os.fork()
    if child == 0:
        os.close(sys.stdout.fileno())
        signal.pause()
    say("forked", child=child, server=feed.stats()["server_pid"])
    hear()


def test_files_of_a_run_are_its_users_and_go_with_it(start: Start, folder: Path) -> None:
    first = start(follow, seed=1)
    first.expect("began")
    found = [*files(folder, "run"), *files(folder, "rng"), folder / "train.share"]
    assert len(found) == 3
    for path in [*found, folder / "train.log"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    first.tell("rest")
    first.expect("rest")
    eventually(lambda: not list(folder.iterdir()))
