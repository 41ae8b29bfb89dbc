"""No fork of this process while one of its threads holds a lock that the child would need.

While random generators are seeded, read or set, torch and NumPy hold locks of theirs; while a
module is imported, Python does. A child that another thread forks at that moment, such as a
DataLoader's worker, would inherit them locked, with nobody there to unlock them, and hang when it
seeds or imports itself. So a thread that forks waits here, mostly for microseconds, and the other
way round.
"""

from __future__ import annotations

import os
import threading

# Its owner can take it again: what it seeds may fork, too.
_lock = threading.RLock()


def no_fork() -> threading.RLock:
    """Return the lock that a thread must take to fork. Its holder waits for nobody."""
    return _lock


def _before_fork() -> None:
    _lock.acquire()


def _after_in_parent() -> None:
    _lock.release()


def _after_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
