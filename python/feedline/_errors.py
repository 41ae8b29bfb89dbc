"""What goes wrong, by what one can do about it; each is also the built-in error to expect.

An error's message names a server's options as data (``Explanation``): the program that shows
it words it for its reader.
"""

from __future__ import annotations

import sys
from typing import Any, Self

from feedline._core import worded

Mention = tuple[str, str, Any]
"""An option's keyword, what is said of it, and a value: see ``feedline-py/src/explain.rs``."""
Part = str | Mention


class Explanation(str):
    """What happened and why, and what to do: a string, with options as Python's keywords."""

    __slots__ = ("hint", "what")

    what: tuple[Part, ...]
    hint: tuple[Part, ...]

    def __new__(cls, what: tuple[Part, ...], hint: tuple[Part, ...] = ()) -> Self:
        """Word it."""
        self = super().__new__(cls, worded(what, hint, False))
        self.what, self.hint = what, hint
        return self

    def for_command_line(self) -> str:
        """The same for a command line: options are flags."""
        return worded(self.what, self.hint, True)

    def __reduce__(self) -> tuple[Any, ...]:
        return Explanation, (self.what, self.hint)


def explained(*what: Part, hint: str | tuple[Part, ...] = ()) -> Explanation:
    """What happened, in parts, and what to do about it."""
    return Explanation(what, (hint,) if isinstance(hint, str) else hint)


def option(name: str) -> Mention:
    """An option, in a message: ``history=``, or ``--history``."""
    return name, "name", None


def given(name: str, value: object) -> Mention:
    """An option with the value that it was given: ``epochs=3``, or ``--epochs 3``."""
    if value is None or isinstance(value, str | int | float):
        return name, "given", value
    return name, "shown", repr(value)


class FeedlineError(Exception):
    """Everything that Feedline raises on its own account."""


class FeedNotFoundError(FeedlineError, TimeoutError):
    """Nobody served a feed of that name within the time."""


class ServerLostError(FeedlineError, ConnectionError):
    """The server died or was stopped. What was read so far was right."""


class LoaderError(FeedlineError):
    """The loader raised, in the server's process; its own traceback is in the message.

    What is raised is also of the class that the loader raised, where that is a built-in one or this
    process has it too: ``except ValueError`` works as it did around the loader itself, and so does
    ``except WorkerError``.
    """


class SchemaError(FeedlineError, TypeError):
    """The loader yielded what a feed can't carry, or changed its types or shapes."""


class BatchSizeError(FeedlineError, ValueError):
    """A batch size that this feed can't give."""


class StalledError(FeedlineError):
    """Somebody stood still for too long: the loader, the server, or this consumer."""


class SamplesGoneError(FeedlineError, LookupError):
    """The samples after a saved place are no longer in the feed."""


class FeedEndedError(FeedlineError):
    """All epochs of the feed are over."""


class FeedValueError(FeedlineError, ValueError):
    """An argument that can't be."""


class FeedMismatchError(FeedlineError, ValueError):
    """The feed of that name serves another loader than the one that was to be shared."""


class FeedMemoryError(FeedlineError, MemoryError):
    """A ring that doesn't fit into memory."""


class WorkerError(FeedlineError, RuntimeError):
    """A sample that ended its worker process, or took longer than ``timeout``, again and again."""


def loader_error(message: str, raised: str | None = None) -> LoaderError:
    """Make the ``LoaderError`` for an exception of the class ``raised``: ``module:qualified.name``.

    Nothing is imported, and no code of that class runs: one that this process doesn't have, or that
    is more than a plain exception, is left out.
    """
    found = None if raised is None else _plain_exception(raised)
    if found is None:
        return LoaderError(message)
    members = {
        "__module__": LoaderError.__module__,
        "__qualname__": LoaderError.__qualname__,
        "__doc__": LoaderError.__doc__,
        # Not the class's own, which may want other arguments or show them in another way.
        "__init__": lambda self, message: Exception.__init__(self, message),
        "__str__": lambda self: str(self.args[0]),
        "__reduce__": lambda self: (loader_error, (str(self), raised)),
    }
    try:
        made: Any = type("LoaderError", (LoaderError, found), members)
        error: LoaderError = made(message)
    except TypeError:  # no class can be both
        return LoaderError(message)
    return error


def _plain_exception(name: str) -> type[Exception] | None:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if type(found) is not type or not issubclass(found, Exception):
        return None
    if found is WorkerError:
        return found
    # A StopIteration would be taken for the epoch's end.
    if issubclass(found, StopIteration | StopAsyncIteration | FeedlineError):
        return None
    own = [one for one in found.__mro__ if one.__module__ != "builtins"]
    runs = {"__new__", "__init_subclass__", "__getattribute__", "__setattr__"}
    return None if any(runs & vars(one).keys() for one in own) else found
