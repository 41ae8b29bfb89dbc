"""How a process that is measured talks to the one that measures: see ``_fleet.children``."""

from __future__ import annotations

import json
import os
import select
import sys
import traceback
from collections.abc import Callable
from typing import TextIO

from feedline._cli.bench.batches import NoBatchError
from feedline._cli.failure import CommandFailedError, trace_of
from feedline._errors import FeedlineError


class Speech:
    """Takes standard output for itself: what a loader prints goes where its complaints go."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **fields: object) -> None:
        print(json.dumps(fields), file=self._out, flush=True)


def told_to_end(within_secs: float = 0.0) -> bool:
    """Whether our standard input was closed; no thread waits for it, since loaders fork."""
    return bool(select.select([0], [], [], within_secs)[0])


def play(role: Callable[[Speech], None]) -> None:
    """Do `role`, and say why if it fails."""
    speech = Speech()
    try:
        role(speech)
    except BrokenPipeError:
        pass  # nobody listens any more
    except BaseException as error:
        traceback.print_exc()
        code = error.exit_code if isinstance(error, CommandFailedError) else 1
        speech.say(error=_words(error), kind=type(error).__name__, exit_code=code)
        sys.stderr.flush()
        # Whatever threads and workers a loader has left, its error is what counts.
        os._exit(1)


def _words(error: BaseException) -> str:
    if isinstance(error, CommandFailedError | FeedlineError | NoBatchError):
        return str(error)
    what = f"the loader raised {type(error).__name__}"
    return f"{what}\n{trace_of(error)}\n  iterate it once without Feedline to find the cause"
