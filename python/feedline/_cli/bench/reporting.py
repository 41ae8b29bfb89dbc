"""How a measured process reports to the one that measures: see ``_measurement.children``."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import TextIO

from feedline._cli.bench.batches import NoBatchError
from feedline._cli.failure import CommandFailedError, trace_of
from feedline._errors import FeedlineError


class Reporter:
    """Takes standard output for its reports: what a loader prints goes to standard error."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, **fields: object) -> None:
        print(json.dumps(fields), file=self._out, flush=True)


def run_role(role: Callable[[Reporter], None]) -> None:
    """Run `role`; if it fails, report why."""
    reporter = Reporter()
    try:
        role(reporter)
    except BrokenPipeError:
        pass  # nobody reads the reports any more
    except BaseException as error:
        traceback.print_exc()
        code = error.exit_code if isinstance(error, CommandFailedError) else 1
        reporter.send(error=_words(error), kind=type(error).__name__, exit_code=code)
        sys.stderr.flush()
        # Whatever threads and workers the loader has left, its error is what counts.
        os._exit(1)


def _words(error: BaseException) -> str:
    if isinstance(error, CommandFailedError | FeedlineError | NoBatchError):
        return str(error)
    what = f"the loader raised {type(error).__name__}"
    return f"{what}\n{trace_of(error)}\n  iterate it once without Feedline to find the cause"
