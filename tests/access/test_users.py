"""Other users of the machine: which of them may attach, and what error the others get."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from support import roles
from support.child import hear, say
from support.feed_status import top
from support.loaders import Numbered
from support.processes import Child
from support.reading import expected, read
from support.share_scripts import SAMPLES, ids, numbers
from support.users import become, needs_root, open_up

STRANGER, FRIEND, LAB = 54_321, 54_322, 54_399


def as_user(uid: int, role: str, groups: list[int] | None = None, **keywords: Any) -> None:
    """Become another user for good, and play a role of this module.

    Everything that is needed was imported before: the files may be out of that user's reach.
    """
    become(uid, groups)
    play: Callable[..., None] = getattr(sys.modules[__name__], role)
    play(**keywords)


def attach_and_read(batch_size: int = 7, **options: Any) -> None:
    with feedline.attach("train", batch_size=batch_size, **options) as feed:
        say("epoch", **read(feed).as_json())


def connect_plainly(path: str) -> None:
    """Connect without a word, as no consumer would, and say what came of it."""
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(path)
        peer.settimeout(10)
        heard = b""
        while piece := peer.recv(4096):
            heard += piece
        say("closed", heard=heard.decode(errors="replace"))
    except OSError as error:
        say("failed", type=type(error).__name__)


def serve_as_user(**options: Any) -> None:
    with feedline.Server(Numbered(100, 10), "train", epochs=1, **options):
        say("ready")
        hear()


def server(start: Start, **options: Any) -> Child:
    child = start(roles.serve, loader_args=[100, 10], epochs=1, **options)
    child.expect("ready")
    return child


@needs_root
def test_the_folder_and_the_socket_are_closed_to_others(start: Start, folder: Path) -> None:
    child = server(start)
    path = folder / "train.sock"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o700, 0o755):
        folder.chmod(mode)
        plain = start(as_user, uid=STRANGER, role="connect_plainly", path=str(path))
        assert plain.expect("failed")["type"] == "PermissionError"
        stranger = start(as_user, uid=STRANGER, role="attach_and_read")
        stranger.expect_error(feedline.FeedlineError, str(path), f"allow=({STRANGER},)")
    assert not child.ask("stats")["stats"]["consumers"]


@needs_root
def test_a_stranger_who_gets_as_far_as_the_server_is_refused(start: Start, folder: Path) -> None:
    child = server(start)
    open_up(folder)
    stranger = start(as_user, uid=STRANGER, role="attach_and_read", allow=[0])
    stranger.expect_error(feedline.FeedlineError, "train", f"allow=({STRANGER},)")
    plain = start(as_user, uid=STRANGER, role="connect_plainly", path=str(folder / "train.sock"))
    assert f"user {STRANGER}" in plain.expect("closed")["heard"]
    assert f"of user {STRANGER}" in child.stderr
    with feedline.attach("train", batch_size=7) as feed:
        assert read(feed) == expected(0, 100, 7)


@needs_root
def test_one_who_is_allowed_reads_exactly_and_others_do_not(start: Start, folder: Path) -> None:
    folder.chmod(0o755)
    child = server(start, allow=[FRIEND], wait_for=2)
    assert (folder / "train.sock").stat().st_mode & 0o777 == 0o666
    friend = start(as_user, uid=FRIEND, role="attach_and_read")
    stranger = start(as_user, uid=STRANGER, role="attach_and_read")
    stranger.expect_error(feedline.FeedlineError, f"allow=({STRANGER},)")
    with feedline.attach("train", batch_size=9) as feed:
        assert read(feed) == expected(0, 100, 9)
    epoch = friend.expect("epoch")
    assert epoch["keys"] == expected(0, 100, 7).keys
    assert epoch["exact"]
    child.expect("done")


@needs_root
@pytest.mark.parametrize("mode", ["cow", "copy", "readonly"])
def test_a_group_is_allowed_as_a_whole(start: Start, folder: Path, mode: str) -> None:
    """Also as one of the groups that a user has besides its own."""
    folder.chmod(0o755)
    child = start(serve_for_a_group, gid=LAB)
    child.expect("ready")
    stranger = start(as_user, uid=STRANGER, role="attach_and_read", groups=[LAB + 1])
    stranger.expect_error(feedline.FeedlineError, f"allow=({STRANGER},)")
    member = start(as_user, uid=FRIEND, role="attach_and_read", groups=[LAB + 1, LAB], mode=mode)
    epoch = member.expect("epoch")
    assert epoch["keys"] == expected(0, 100, 7).keys
    assert epoch["exact"]


def serve_for_a_group(gid: int) -> None:
    """Serve for a group that exists only here: what a name stands for is the system's affair."""
    import grp

    entry = grp.struct_group(("lab", "x", gid, []))
    grp.getgrnam = lambda name: entry
    serve_as_user(allow=["@lab"])


@needs_root
def test_a_consumer_takes_a_feed_only_from_whom_it_trusts(start: Start, folder: Path) -> None:
    """Root too: what another user's server sends is not believed unless that was asked for."""
    os.chown(folder, FRIEND, FRIEND)
    other = start(as_user, uid=FRIEND, role="serve_as_user")
    other.expect("ready")
    with pytest.raises(feedline.FeedlineError, match=rf"allow=\({FRIEND},\)"):
        feedline.attach("train", batch_size=7)
    with feedline.attach("train", batch_size=7, allow=(FRIEND,)) as feed:
        assert read(feed) == expected(0, 100, 7)


def share_and_read(allow: list[int]) -> None:
    with feedline.share(numbers, "train", batch_size=7, allow=allow, linger_secs=0.1) as feed:
        say("read", ids=ids(feed), server=feed.stats()["server_pid"])


@needs_root
@pytest.mark.usefixtures("servers_leave")
def test_another_user_shares_a_feed_that_lingers(start: Start, folder: Path) -> None:
    folder.chmod(0o755)
    options: dict[str, Any] = {"allow": [FRIEND], "linger_secs": 600}
    with feedline.share(numbers, "train", batch_size=7, **options) as feed:
        server = feed.stats()["server_pid"]
    friend = start(as_user, uid=FRIEND, role="share_and_read", allow=[0])
    report = friend.expect("read")
    os.kill(server, signal.SIGTERM)
    assert (report["ids"], report["server"]) == (list(range(SAMPLES)), server)


@needs_root
def test_another_user_cannot_start_a_feed_in_a_folder_that_is_not_his(
    start: Start, folder: Path
) -> None:
    folder.chmod(0o755)
    friend = start(as_user, uid=FRIEND, role="share_and_read", allow=[0])
    friend.expect_error(
        feedline.FeedlineError, "only user root (0) can start it", str(folder), "FEEDLINE_DIR"
    )


@needs_root
def test_others_who_cannot_reach_the_folder_are_told_of(start: Start, folder: Path) -> None:
    child = server(start, allow=[FRIEND])
    assert "FEEDLINE_DIR" in child.stderr
    assert str(folder) in child.stderr


@pytest.mark.parametrize(
    ("allow", "named"),
    [
        (("nobody-of-that-name",), "nobody-of-that-name"),
        (("@no-such-group",), "@no-such-group"),
        ((-1,), "-1"),
        ((True,), "True"),
        ((2**32 - 1,), "4294967295"),
        ((1.5,), "1.5"),
        ("alice", "'alice'"),
        (1001, "1001"),
        (("",), '""'),
    ],
)
def test_names_that_mean_nothing_are_refused(allow: Any, named: str) -> None:
    with pytest.raises(feedline.FeedlineError) as error:
        feedline.Server(Numbered(10, 5), "train", allow=allow)
    assert named in str(error.value)
    assert "@lab" in str(error.value)
    with pytest.raises(ValueError, match="@lab"):
        feedline.attach("train", allow=allow, timeout_secs=0)


def test_names_of_users_and_groups_are_looked_up() -> None:
    with (
        feedline.Server(Numbered(10, 5), "train", epochs=1, allow=("root", 7, "@root")),
        feedline.attach("train", batch_size=5, allow=["root"]) as feed,
    ):
        assert read(feed) == expected(0, 10, 5)


CLONE_NEWPID = 0x2000_0000


def serve_in_a_namespace() -> None:
    """Serve as process 1 of a namespace, where nobody outside has a process id."""
    if ctypes.CDLL(None).unshare(CLONE_NEWPID) != 0:
        say("unable")
        return
    pid = os.fork()
    if pid == 0:
        try:
            serve_as_user()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


@needs_root
def test_a_peer_without_a_process_id_is_a_peer(start: Start) -> None:
    child = start(serve_in_a_namespace)
    if child.report()["event"] == "unable":
        pytest.skip("this kernel, or this container, has no namespaces to give")
    with feedline.attach("train", batch_size=7) as feed:
        # It calls itself 1, which is another process here.
        here = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
        view = top("train", interval_secs=0.2)
        assert (view["pid"], view["server"]["pid"]) == (here, here)
        assert [consumer["pid"] for consumer in view["consumers"]] == [0]
        assert read(feed) == expected(0, 100, 7)


class Resumable(Numbered):
    """A loader with a state, to be kept."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise AssertionError("nothing of another user's is loaded")


@needs_root
def test_a_state_that_another_user_wrote_is_not_loaded(tmp_path: Path) -> None:
    """It is a pickle, and a folder like /tmp is everybody's."""
    path = tmp_path / "state"
    path.write_bytes(pickle.dumps({"feed": "train", "epoch": 0, "sample": 0, "state": {}}))
    os.chown(path, STRANGER, STRANGER)
    server = feedline.Server(Resumable(10, 5), "train", epochs=1, state_file=path)
    with pytest.raises(feedline.FeedlineError, match=f"user {STRANGER}"):
        server.start()
