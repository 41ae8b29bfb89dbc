"""The errors of commands: what happened, why, what to do next, and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import IO

from feedline._errors import Explanation, FeedlineError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class CommandFailedError(Exception):
    """Something that the command line reports, without a traceback of ours."""

    exit_code = 1


class UsageError(CommandFailedError):
    """Arguments that cannot be used."""

    exit_code = 2


def in_flags(error: FeedlineError) -> str:
    """What an error says, for a command line: options are flags."""
    message = error.args[0] if error.args else ""
    return message.for_command_line() if isinstance(message, Explanation) else str(error)


def report(error: CommandFailedError) -> int:
    """Report it on stderr, and return the exit code."""
    red, plain = ("\x1b[1;31m", "\x1b[0m") if is_coloured(sys.stderr) else ("", "")
    say(f"{red}error:{plain} {error}")
    return error.exit_code


def say(text: str, *, end: str = "\n") -> None:
    """Write to stderr; its reader may be gone."""
    with contextlib.suppress(OSError, ValueError):
        print(text, end=end, file=sys.stderr, flush=True)


def is_coloured(stream: IO[str]) -> bool:
    """Whether a stream shows colours, and lines that are redrawn."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def trace_of(error: BaseException) -> str:
    """The traceback, indented, without our own frames and those of the import machinery."""
    trace = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = trace
    while part is not None:
        frames = [frame for frame in part.stack if not _is_machinery(frame.filename)]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(f"  {line}\n" for line in "".join(trace.format()).rstrip().splitlines()).rstrip()


def _is_machinery(filename: str) -> bool:
    is_ours = filename.startswith(_PACKAGE + os.sep) and not filename.startswith(
        os.path.join(_PACKAGE, "demo")
    )
    return is_ours or "importlib" in filename
