"""The inside of a child process: runs one function and reports JSON lines on stdout.

Started as `python -m support.child module:function '{"keyword": ...}'`;
`processes.py` is the other end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

PR_SET_PDEATHSIG = 1


def say(event: str, **fields: Any) -> None:
    """Report an event. `at` is CLOCK_MONOTONIC, which all processes share."""
    line = json.dumps({"event": event, "at": time.monotonic(), **fields})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for the parent's next line; empty once it has closed the pipe.

    Not through `sys.stdin`: a thread that waits there holds its lock, and a forked worker, which
    closes it, would hang.
    """
    word = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        word += byte
    return word.decode()


def describe(error: BaseException) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__],
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "cause": type(error.__cause__).__name__ if error.__cause__ else None,
    }


def main() -> None:
    # The watchdog ends pytest with os._exit: no child may outlive it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A child that doesn't end is aborted, and reports where it is.
    faulthandler.enable()
    module, function = sys.argv[1].split(":")
    keywords = json.loads(sys.argv[2])
    try:
        getattr(importlib.import_module(module), function)(**keywords)
    except SystemExit:
        raise
    except BaseException as error:
        say("error", **describe(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
