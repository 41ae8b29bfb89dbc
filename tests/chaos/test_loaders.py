"""The loader raises or hangs while consumers are in all kinds of places."""

from __future__ import annotations

from pathlib import Path

import feedline
from chaos.conftest import Note
from chaos.scenario import serve_again
from conftest import Start
from support import roles
from support.child import hear, say
from support.reading import read
from support.waiting import allow_to_go_wrong

BROKEN_AT = 1000
SIZES = (1, 7, 64, 10)


def read_until_it_fails(batch_size: int) -> None:
    feed = feedline.attach("train", batch_size=batch_size)
    iterator = iter(feed)
    got = read(iterator, limit=1)
    say("reading")
    hear()
    try:
        while True:
            one = read(iterator, limit=1)
            assert one.keys, "the epoch ended"
            got.keys += one.keys
            got.exact = got.exact and one.exact
    except feedline.LoaderError as error:
        say("failed", keys=got.keys, exact=got.exact, message=str(error))


def test_it_raises_while_one_is_stopped_and_one_is_dead(start: Start, note: Note) -> None:
    """All that came before the error comes first, to everybody."""
    server = start(
        roles.serve,
        loader="Broken",
        loader_args=[5000, 10],
        loader_options={"at": BROKEN_AT},
        ring=200,
        wait_for=4,
    )
    server.expect("ready")
    *readers, victim = (start(read_until_it_fails, batch_size=size) for size in SIZES)
    for reader in (*readers, victim):
        reader.expect("reading")
    stopped = readers[0]
    stopped.stop()
    for reader in (*readers, victim):
        reader.tell("go on")
    victim.kill()
    # Everybody has to wait for the one that is stopped.
    allow_to_go_wrong(0.5)
    resumed_at = stopped.resume()
    for reader, size in zip(readers, SIZES, strict=False):
        report = reader.expect("failed")
        # A smaller batch would be an epoch's last, and this is none.
        whole = BROKEN_AT // size * size
        assert (report["exact"], report["keys"]) == (True, list(range(whole)))
        assert f"sample {BROKEN_AT} is truncated" in report["message"]
        note("the loader raised: a consumer has its error", report["at"] - resumed_at)
    assert server.report()["event"] == "error"


def test_it_hangs_and_the_server_is_killed(start: Start, folder: Path, note: Note) -> None:
    server = start(roles.serve, loader="Stuck", loader_args=[200, 10], wait_for=3)
    server.expect("ready")
    followers = [start(roles.follow, batch_size=size) for size in (1, 7, 64)]
    for follower, batches in zip(followers, (200, 28, 3), strict=True):
        follower.expect("attached")
        assert all(follower.expect("batch")["exact"] for _ in range(batches))
    killed_at = server.kill()
    for follower in followers:
        error = follower.expect_error(feedline.ServerLostError, "train")
        note("server killed in a loader that hangs: its error", error["at"] - killed_at)
    serve_again(folder)
