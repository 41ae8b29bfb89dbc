"""A server that is killed or stopped: all consumers get an error; nothing is left to clean up.

How soon they know is measured by `chaos/test_figures.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.loaders import Numbered
from support.processes import Child, children_of
from support.reading import expected, is_exact, keys_of, read
from support.stopping import is_stopped, stop


def _await_loss(consumer: Child) -> None:
    report = consumer.expect_error(feedline.ServerLostError, "train")
    assert "ConnectionError" in report["bases"]


def _serve_again(folder: Path) -> None:
    """Serve under the same name: it is free at once, and after a stop the folder is empty."""
    with (
        feedline.Server(Numbered(50, 10), "train", epochs=1),
        feedline.attach("train", batch_size=10) as feed,
    ):
        assert read(feed) == expected(0, 50, 10)
    assert not list(folder.iterdir())


def wait_for_data_that_never_comes(name: str, batch_size: int) -> None:
    feed = feedline.attach(name, batch_size=batch_size)
    iterator = iter(feed)
    batch = next(iterator)
    say("waiting", pid=feed.stats()["server_pid"])
    try:
        next(iterator)
    finally:
        # A batch in hand is worth as much as before.
        assert is_exact(batch)


def test_a_killed_server_is_known_to_those_who_wait_for_data(start: Start, folder: Path) -> None:
    server = start(roles.serve, loader="Stuck", loader_args=[10, 10])
    server.expect("ready")
    consumers = [
        start(wait_for_data_that_never_comes, name="train", batch_size=10) for _ in range(3)
    ]
    for consumer in consumers:
        consumer.expect("waiting")
    server.kill()
    for consumer in consumers:
        _await_loss(consumer)
    _serve_again(folder)


def test_a_killed_server_is_known_at_the_next_call(start: Start, folder: Path) -> None:
    server = start(roles.serve, loader="Endless", loader_args=[10], ring=1000)
    server.expect("ready")
    feed = feedline.attach("train", batch_size=10)
    iterator = iter(feed)
    kept = next(iterator)
    server.kill()
    # Samples that the ring still has may come first; whatever comes is right.
    with pytest.raises(feedline.ServerLostError, match="train") as error:  # noqa: PT012
        for batch in iterator:
            assert is_exact(batch)
    assert str(server.pid) in str(error.value)
    assert is_exact(kept)
    assert keys_of(kept) == list(range(10))
    # It is said every time, not once.
    with pytest.raises(feedline.ServerLostError):
        next(iter(feed))
    feed.close()
    _serve_again(folder)


def test_a_killed_server_is_known_to_one_that_never_joined(start: Start, folder: Path) -> None:
    server = start(roles.serve, loader_args=[100, 10])
    server.expect("ready")
    feed = feedline.attach("train", batch_size=10)
    server.kill()
    with pytest.raises(feedline.ServerLostError):
        for _ in feed:
            pass
    feed.close()
    _serve_again(folder)


def test_workers_of_a_killed_server_neither_keep_it_alive_nor_its_name(
    start: Start, folder: Path, reap: Callable[[], None]
) -> None:
    """Forked workers inherit every descriptor of the server: its sockets and locks too."""
    server = start(
        roles.serve,
        loader="torch_loader",
        loader_args=[640, 64],
        loader_options={"num_workers": 2, "persistent_workers": True},
        ring=200,
    )
    server.expect("ready")
    feed = feedline.attach("train", batch_size=64)
    iterator = iter(feed)
    first = next(iterator)
    workers = children_of(server.pid)
    # So that they don't notice that they are orphans: they check every five seconds.
    for worker in workers:
        stop(worker)
    server.kill()
    with pytest.raises(feedline.ServerLostError):  # noqa: PT012 - what comes first must be right
        for batch in iterator:
            assert is_exact(batch)
    assert is_exact(first)
    feed.close()
    _serve_again(folder)
    assert all(is_stopped(worker) for worker in workers)
    reap()


def test_a_stopped_server_says_so_to_everyone() -> None:
    server = feedline.Server(Numbered(10_000, 10), "train", ring=60)
    server.start()
    feed = feedline.attach("train", batch_size=7)
    iterator = iter(feed)
    next(iterator)
    server.stop()
    with pytest.raises(feedline.ServerLostError, match="stop"):  # noqa: PT012
        for batch in iterator:
            assert is_exact(batch)
    assert server.stats()["state"] == "stopped"
    server.stop()
    feed.close()


def test_a_server_stops_while_its_loader_is_stuck(start: Start) -> None:
    server = start(roles.serve, loader="Stuck", loader_args=[10, 10])
    server.expect("ready")
    consumer = start(wait_for_data_that_never_comes, name="train", batch_size=10)
    consumer.expect("waiting")
    server.tell("stop")
    assert server.expect("done")["stats"]["state"] == "stopped"
    consumer.expect_error(feedline.ServerLostError, "train")
    assert server.exit_code() == 0


def test_kill_and_the_same_commands_again_five_times(start: Start, folder: Path) -> None:
    """Server and consumer killed together, at no particular moment."""
    for _ in range(5):
        server = start(roles.serve, loader="Endless", loader_args=[10], ring=100)
        consumer = start(roles.follow, batch_size=7)
        server.expect("ready")
        consumer.expect("attached")
        assert consumer.expect("batch")["exact"]
        server.kill()
        consumer.kill()
    _serve_again(folder)


def serve_with_much_memory() -> None:
    ballast = bytearray(b"x") * (1 << 30)
    with feedline.Server(Numbered(100, 10), "train"):
        say("ready", ballast=len(ballast))
        hear()


def test_a_name_is_free_while_its_killed_server_is_still_being_taken_apart(
    start: Start, folder: Path
) -> None:
    server = start(serve_with_much_memory)
    server.expect("ready")
    server.signal(signal.SIGKILL)
    _serve_again(folder)
