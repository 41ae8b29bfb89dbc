"""Where a thread is, for the server's watchdog; called while the thread hangs."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

_SERVER = str(Path(__file__).with_name("_server.py"))
_MOST_FRAMES = 25

# Threads that only wait for another thread, which does the loading.
driven_by: dict[int, int] = {}


def stack_of(thread: int, with_source: bool) -> str:
    """Return the innermost frames of a thread, as in a traceback, without the server's own."""
    frame = sys._current_frames().get(driven_by.get(thread, thread))
    if frame is None:
        return "its thread is gone"
    frames: list[traceback.FrameSummary] = []
    for inner, line in traceback.walk_stack(frame):
        code = inner.f_code
        if code.co_filename == _SERVER or len(frames) == _MOST_FRAMES:
            break
        source = None if with_source else ""
        frames.append(traceback.FrameSummary(code.co_filename, line, code.co_name, line=source))
    if not frames:
        return "it is in native code, outside of any Python function"
    stack = traceback.StackSummary.from_list(frames[::-1])
    return "it is here:\n" + "".join(stack.format()).rstrip()
