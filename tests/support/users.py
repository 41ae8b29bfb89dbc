"""Other users of the machine: becoming one, and letting them at a feed's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can start another user's process"
)


def become(uid: int, groups: list[int] | None = None) -> None:
    os.setgroups(groups or [])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def open_up(folder: Path) -> None:
    """As somebody might who knows no better, whatever the server has set."""
    folder.chmod(0o755)
    (folder / "train.sock").chmod(0o666)
