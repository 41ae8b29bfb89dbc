"""The processes that this one started, directly or not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def end_descendants(number: int) -> None:
    """Send a signal to all of this session; a child with a session of its own is meant to go on."""
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            # multiprocessing's resource tracker removes what the others leave, and ends by itself.
            is_keeper = b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.getsid(pid) == os.getsid(0) and not is_keeper:
                os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    """Parents come before their children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found
