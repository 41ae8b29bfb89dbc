"""One script, started many times: the first one starts the server, all attach."""

from __future__ import annotations

import inspect
import itertools
import logging
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, overload

from feedline import _start_record
from feedline._attachment import noted
from feedline._core import check_name
from feedline._errors import FeedlineError, FeedNotFoundError, FeedValueError, StalledError
from feedline._feed import Feed, attach
from feedline._loader import made_by
from feedline._mismatch import Mismatch, check_mismatch, checked_key, describe, lines
from feedline._mode_off import with_feed_methods
from feedline._options import SERVER_OPTIONS, check_options, server_parameters, showing
from feedline._seeding import seed_before_making
from feedline._server import Server
from feedline._shard import resolve_shard
from feedline._start_record import log_path
from feedline._starter import Starter

_log = logging.getLogger("feedline")

# Making a loader of a large data set and its first batch may take minutes.
_TIMEOUT_SECS = 300.0

_OF_CONSUMER = {
    one.name: one.replace(default=_TIMEOUT_SECS) if one.name == "timeout_secs" else one
    for one in inspect.signature(attach).parameters.values()
    if one.kind is one.KEYWORD_ONLY and not one.name.startswith("_")
}


# What ``feedline.DataLoader`` asks for beside them.
_OF_LOADER = ("_takes_whole",)


@overload
def share(
    make_loader: Callable[[], Any],
    name: str,
    *,
    batch_size: int | None = None,
    linger_secs: float | None = 10.0,
    key: object = None,
    mismatch: Mismatch = "error",
    **both: Any,
) -> Feed: ...


@overload
def share(
    make_loader: Mapping[str, Callable[[], Any]],
    name: str,
    *,
    batch_size: int | dict[str, int | None] | None = None,
    linger_secs: float | None = 10.0,
    key: object = None,
    mismatch: Mismatch = "error",
    **both: Any,
) -> dict[str, Feed]: ...


@showing((*server_parameters(), *_OF_CONSUMER.values()))
def share(
    make_loader: Callable[[], Any] | Mapping[str, Callable[[], Any]],
    name: str,
    *,
    batch_size: int | dict[str, int | None] | None = None,
    linger_secs: float | None = 10.0,
    key: object = None,
    mismatch: Mismatch = "error",
    **both: Any,
) -> Feed | dict[str, Feed]:
    """Share the loader that ``make_loader()`` returns with all jobs that use the same name.

    The first job to come starts a server: a process of its own, which calls ``make_loader`` and
    ends ``linger_secs`` after the last consumer has left. Takes the keywords of ``Server``, which
    count if this call starts the server, and of ``attach``; ``timeout_secs`` (300) covers making
    the loader and its first batch.

    ``make_loader`` goes to the server by value: lambdas, closures and functions of a script or a
    notebook will do, with what they refer to, as long as that can be pickled. The script itself
    isn't run again. A generator function is called anew for each epoch. Costs the start of an
    interpreter, and whatever ``make_loader`` imports.

    What the loader prints goes to a log file beside the feed's socket; errors name it. What
    ``make_loader`` or the loader raises is raised here and by every consumer, with its traceback.
    With ``reconnect_secs``, a server that was killed is started again, and goes on with the epoch
    in the same order. With ``seed`` the server's generators (Python's, NumPy's, torch's) are seeded
    before ``make_loader`` is called, too; what this script seeds for itself has no effect there.
    ``epochs`` are the feed's, from its first job on: mostly best left out.

    Jobs that call this with one name must mean one loader. What ``make_loader`` reaches is compared
    with what the running server's did: values (``args.size``, not all of ``args``), captured
    objects, the source of the functions and classes that are used. What differs is a
    ``FeedMismatchError`` that names it; ``mismatch="warn"`` logs it and reads what is served.
    With ``key=``, a plain value such as ``(args.data, args.size)``, only the keys are compared.

    Several functions, by name, are served by one process and end together:
    ``share({"train": make_train, "val": make_val}, "images")`` gives a dict of the feeds
    "images.train" and "images.val". A keyword is for all of them, or a dict with a value for each
    that needs one: ``batch_size={"train": 64, "val": 256}``. Their loaders run in threads of one
    process; a DataLoader without a generator of its own gets one.

    ``FEEDLINE_MODE=off`` in the environment makes this return ``make_loader()``, with a feed's
    methods, which do next to nothing;
    ``FEEDLINE_MODE=local`` serves from a thread of this process, and nobody else.
    """
    makers = _checked_makers(make_loader, name)
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise FeedlineError(
            f'share(..., "{name}") was called by a worker process that imports the script\n'
            '  put it under: if __name__ == "__main__":'
        )
    if _start_record.serving == name:
        raise FeedlineError(
            f'share(..., "{name}") was called in the server\'s own process, '
            "which imports the script\n"
            '  put it into a function, or under: if __name__ == "__main__":'
        )
    check_mismatch(mismatch)
    checked_key(key)
    keywords = {"batch_size": batch_size, **both}
    if "allow" in both:
        keywords["allow"] = _kept(both["allow"])
    wanted = {
        part: _wanted(maker, f"{name}.{part}" if part else name, _of_part(keywords, part, makers))
        for part, maker in makers.items()
    }
    for one in wanted.values():
        one.of_server["linger_secs"] = linger_secs
        # What is wrong with them should be said here, not in the server's log.
        check_name(one.feed)
        check_options(one.of_server)
    mode = os.environ.get("FEEDLINE_MODE", "")
    if mode == "off":
        got = {part: _plain(one) for part, one in wanted.items()}
    elif mode == "local":
        got = _each(wanted, _local)
    elif mode not in ("", "shared"):
        raise FeedValueError(
            f'FEEDLINE_MODE="{mode}" is not one of "off", "local", "shared"\n'
            "  unset it to share the loader"
        )
    else:
        caller = sys._getframe(1)
        place = (caller.f_code.co_filename, caller.f_lineno)
        got = _shared(wanted, name, key, mismatch, place)
    return got if isinstance(make_loader, Mapping) else got[""]


@dataclass(frozen=True)
class _Wanted:
    """One of the feeds that were asked for."""

    feed: str
    make_loader: Callable[[], Any]
    of_server: dict[str, Any]
    of_consumer: dict[str, Any]


def _checked_makers(make_loader: Any, name: Any) -> dict[str, Callable[[], Any]]:
    """The functions by name; a single one has none."""
    if isinstance(make_loader, Mapping):
        if not make_loader:
            raise FeedValueError('share({}, ...): no function at all\n  {"train": make_train}')
        for part, maker in make_loader.items():
            if not isinstance(part, str) or not part or not callable(maker):
                raise TypeError(
                    f"share takes a function that returns a loader, or several by name, "
                    f"not {part!r}: {maker!r}\n"
                    '  share({"train": make_train, "val": make_val}, "images")'
                )
    elif not callable(make_loader):
        is_turned = callable(name)
        way_out = "inner = loader; share(lambda: inner, name), or a function that makes the loader"
        raise TypeError(
            f"make_loader is a function that returns a loader, not a {type(make_loader).__name__}\n"
            f"  {'share(make_loader, name): the function comes first' if is_turned else way_out}"
        )
    if not isinstance(name, str):
        raise TypeError(f'a feed\'s name is a str, not {name!r}\n  share(make_loader, "images")')
    return dict(make_loader) if isinstance(make_loader, Mapping) else {"": make_loader}


def _kept(allow: Any) -> Any:
    """What an iterator gives, which gives it once: server and consumer ask for it."""
    if isinstance(allow, dict):
        return {part: _kept(one) for part, one in allow.items()}
    is_several = isinstance(allow, Iterable) and not isinstance(allow, str | bytes)
    return tuple(allow) if is_several else allow


def _of_part(keywords: dict[str, Any], part: str, parts: Mapping[str, object]) -> dict[str, Any]:
    """The keywords of one feed, where a dict has a value for each that needs one."""
    chosen = {}
    for key, value in keywords.items():
        if not part or not isinstance(value, dict):
            chosen[key] = value
            continue
        unknown = [one for one in value if one not in parts]
        if unknown:
            raise FeedValueError(
                f"{key}={value!r} names {unknown[0]!r}, and the feeds are "
                f"{', '.join(map(repr, parts))}"
            )
        if part in value:
            chosen[key] = value[part]
    return chosen


def _wanted(make_loader: Callable[[], Any], feed: str, keywords: dict[str, Any]) -> _Wanted:
    of_server, of_consumer = _sorted(keywords)
    return _Wanted(feed, make_loader, of_server, {"timeout_secs": _TIMEOUT_SECS, **of_consumer})


def _each(wanted: dict[str, _Wanted], get: Callable[[_Wanted], Feed]) -> dict[str, Feed]:
    """All feeds, or none."""
    got: dict[str, Feed] = {}
    try:
        for part, one in wanted.items():
            got[part] = get(one)
    except BaseException:
        for feed in got.values():
            feed.close()
        raise
    return got


def _shared(
    wanted: dict[str, _Wanted], name: str, key: object, mismatch: Mismatch, place: object
) -> dict[str, Feed]:
    makers = {one.feed: one.make_loader for one in wanted.values()}
    options = {one.feed: one.of_server for one in wanted.values()}
    starter = Starter(makers, name, options, describe(makers, key, options, place), mismatch)
    got = _each(wanted, lambda one: _attached(one, name, starter))
    reconnecting = [
        feed for feed in got.values() if feed._attachment.arguments["reconnect_secs"] > 0
    ]
    try:
        starter.compare(next(iter(got.values())).stats()["server_pid"])
        starter.settle(may_reconnect=bool(reconnecting))
    except BaseException:
        for feed in got.values():
            feed.close()
        raise
    for feed in reconnecting:
        feed._attachment.check_server = starter.compare_again
    return got


def _attached(one: _Wanted, name: str, starter: Starter) -> Feed:
    server_log = log_path(name)
    try:
        feed = attach(one.feed, **one.of_consumer, _when_missing=starter)
    except FeedNotFoundError:
        waited = one.of_consumer["timeout_secs"]
        raise StalledError(
            f'the server of feed "{one.feed}" is still being started after {waited:g} s: '
            f"make_loader has not returned\n  what its server printed: {server_log}\n"
            "  give it longer: timeout_secs=..."
        ) from None
    except FeedlineError as error:
        if isinstance(error, FeedValueError) or _start_record.other_owner():
            raise
        raise noted(error, server_log) from error.__cause__
    feed._attachment.server_log = server_log
    return feed


def _sorted(both: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell a server's keywords from a consumer's; some are both."""
    for key in both:
        if key not in SERVER_OPTIONS and key not in (*_OF_CONSUMER, *_OF_LOADER):
            raise TypeError(
                f"share() got an unexpected keyword argument {key!r}\n"
                "  it takes what Server and attach take"
            )
    return (
        {key: value for key, value in both.items() if key in SERVER_OPTIONS},
        {key: both[key] for key in both if key in (*_OF_CONSUMER, *_OF_LOADER)},
    )


def _without(options: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in keys}


def _plain(one: _Wanted) -> Any:
    loader = made_by(one.make_loader)
    asked = {
        key: value for key, value in one.of_consumer.items() if value and key != "timeout_secs"
    }
    if asked.get("batch_size") == getattr(loader, "batch_size", None):
        asked.pop("batch_size", None)
    if asked:
        _log.warning(
            "FEEDLINE_MODE=off: the plain loader knows nothing of %s\n"
            "  FEEDLINE_MODE=local serves in this process, with all of it",
            ", ".join(lines(asked).split("\n")),
        )
    return with_feed_methods(loader, one.feed)


def _local(one: _Wanted) -> Feed:
    if resolve_shard(one.of_consumer.get("shard")) is not None:
        raise FeedValueError(
            "FEEDLINE_MODE=local and shard=: each rank would serve a loader of its own\n"
            "  unset FEEDLINE_MODE, or start the script without other ranks"
        )
    own = f"{one.feed[:30]}.local-{os.getpid()}-{next(_count)}"
    seed_before_making(one.of_server.get("seed"))
    options = _without(one.of_server, "linger_secs")
    server = Server(made_by(one.make_loader), own, **options).start()
    try:
        feed = attach(own, **one.of_consumer)
    except BaseException:
        server.stop()
        raise
    attachment = feed._attachment
    attachment.name, attachment.keeps = one.feed, server
    weakref.finalize(attachment, server.stop)
    return feed


_count = itertools.count(1)


__all__ = ["share"]
