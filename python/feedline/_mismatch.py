"""Checks that the running feed is the one that was asked for.

A process that starts a server writes what identifies its loader to the record of ``NAME.share``;
every process that shares that name later compares. A feed that was started by hand has no record,
and is taken as it is.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from feedline._errors import FeedMismatchError, FeedValueError
from feedline._identity import Entry, State, differences, identity_of
from feedline._start_record import Record

_log = logging.getLogger("feedline")

Mismatch = Literal["error", "warn"]

# Options that change what is loaded; the others only change how it is served.
_OF_THE_DATA = ("seed", "replay")
# What was warned about: places in the user's code of what can't be compared, and differences that
# may not matter.
_told: set[Any] = set()


@dataclass(frozen=True)
class Description:
    """What was asked for, in a form that fits into a record; by feed."""

    identity: dict[str, list[Entry]]
    key: str
    options: dict[str, str]
    module_state: State

    def put_into(self, record: Record) -> None:
        record.identity = {
            feed: [list(one) for one in entries] for feed, entries in self.identity.items()
        }
        record.key, record.options = self.key, self.options


def describe(
    makers: Mapping[str, Callable[[], Any]],
    key: object,
    options: Mapping[str, dict[str, Any]],
    place: object,
) -> Description:
    """What identifies the loaders: the key, if there is one, or else all that they reach.

    ``place`` is where in the user's code this was asked for.
    """
    identity: dict[str, list[Entry]] = {feed: [] for feed in makers}
    unknown: dict[str, str] = {}
    module_state: State = {}
    for feed, make_loader in makers.items():
        found = identity_of(make_loader)
        module_state.update(found.module_state)
        if key is None:
            identity[feed] = found.entries
            unknown.update(found.opaque)
    if unknown and place not in _told:
        _told.add(place)
        _log.warning(
            "not compared between jobs that share a loader: %s\n"
            "  make it inside make_loader, or say what identifies the loader: key=...",
            "; ".join(f"{label} ({what})" for label, what in sorted(unknown.items())),
        )
    served = {}
    for feed, own in options.items():
        for name in _OF_THE_DATA:
            value = own.get(name)
            if value is not None and value is not False:
                identity[feed].append(Entry(f"{name}=", repr(value), repr(value)))
        served[feed] = lines({key: own[key] for key in own if key not in _OF_THE_DATA})
    return Description(identity, checked_key(key), served, module_state)


def checked_key(key: object) -> str:
    """The text of a key, the same for equal keys; empty for none."""
    return "" if key is None else _text(key)


def _text(key: object) -> str:
    if isinstance(key, tuple | list):
        return f"[{', '.join(map(_text, key))}]"
    if isinstance(key, dict):
        return f"{{{', '.join(sorted(f'{_text(one)}: {_text(key[one])}' for one in key))}}}"
    if isinstance(key, os.PathLike):
        return repr(os.fspath(key))
    if type(key).__module__ == "numpy" and hasattr(key, "item") and not getattr(key, "shape", None):
        key = key.item()
    if key is None or isinstance(key, str | bytes | bool | int | float):
        return repr(key)
    raise FeedValueError(
        f"key={key!r} is not a plain value\n"
        "  give a str, a path, a number, or a tuple or dict of those: key=(args.data, args.size)"
    )


def check_mismatch(mismatch: object) -> None:
    if mismatch not in ("error", "warn"):
        raise FeedValueError(f'mismatch={mismatch!r} is not one of "error", "warn"')


def lines(options: dict[str, Any]) -> str:
    """Options, a line each."""
    return "\n".join(f"{key}={options[key]!r}" for key in sorted(options))


def compare(
    name: str,
    here: Description,
    running: Mapping[str, Record | None],
    server_pid: int,
    mismatch: Mismatch,
) -> bool:
    """Raise or warn if the server has other loaders; warn if they are served otherwise.

    ``running`` is the record of each feed (``_start_record.record_of``). Says whether the loaders
    are those that were asked for. Other feeds of the server don't matter here.
    """
    found: list[str] = []
    unsure: list[str] = []
    for feed, asked in here.options.items():
        record = running[feed]
        if record is None:
            _log.warning(
                'feed "%s" (pid %d) is not compared with the loader asked for here: '
                "what its server was started with can't be read\n"
                "  to be sure: feedline stop %s, then start again",
                *(feed, server_pid, feed),
            )
        if record is None or not record.serves:
            continue
        there = record.options.get(feed, asked)
        if there != asked:
            _warn_of_options(feed, asked, there, server_pid)
        which = "" if feed == name else f"{feed}: "
        same_key = _different_keys(here, record, server_pid)
        of_feed, unsure_of = _differences(feed, here, record, server_pid)
        found += [one for one in same_key if one not in found]
        found += [f"{which}{one}" for one in of_feed]
        unsure += [f"{which}{one}" for one in unsure_of]
    if not found:
        # Once in a process, however often it shares the feed.
        if unsure and (name, *unsure) not in _told:
            _told.add((name, *unsure))
            _log.warning(
                'feed "%s" (pid %d) may serve another loader than the one asked for here: '
                "Feedline can't tell whether the loader depends on this\n%s\n"
                "  to say what identifies the loader: key=...; to have both: another name",
                *(name, server_pid, "\n".join(f"  {one}" for one in unsure)),
            )
        return True
    message = "\n".join(
        [
            f'feed "{name}" (pid {server_pid}) serves another loader than the one asked for here',
            *(f"  {one}" for one in found),
            *_of_batch_sizes(found),
            "  to have both: another name for one of them",
            f"  to have this one instead: feedline stop {next(iter(here.options))}, "
            "then start again",
            '  to read what is served there: mismatch="warn"; if both load the same: key=...',
        ]
    )
    if mismatch == "error":
        raise FeedMismatchError(message)
    _log.warning("%s", message)
    return False


def _of_batch_sizes(found: list[str]) -> list[str]:
    """What to do where jobs want other batches of the same samples, which is what feeds are for."""
    for one in found:
        size = re.search(r"\bbatch_size(?:'])?: \d+ in the running feed .*, (\d+) here", one)
        if size is not None:
            return [
                "  jobs may have batch sizes of their own: the same one in make_loader for all, "
                f"and this job's in share(..., batch_size={size[1]})"
            ]
    return []


def is_same(here: Description, before: Record) -> bool:
    """Whether a server was started with these loaders, as far as can be seen."""
    if (here.key, here.options) != (before.key, before.options):
        return False
    return not any(any(_differences(feed, here, before, 0)) for feed in here.identity)


def _different_keys(here: Description, running: Record, server_pid: int) -> list[str]:
    if here.key == running.key:
        return []
    there = f"{running.key or 'none'} in the running feed (pid {server_pid})"
    return [f"key: {there}, {here.key or 'none'} here"]


def _differences(
    feed: str, here: Description, running: Record, server_pid: int
) -> tuple[list[str], list[str]]:
    ours = here.identity[feed]
    theirs = [Entry(*one) for one in running.identity.get(feed, [])]
    # With a key, or if one of the two couldn't be followed (a warning says so), the options that
    # change the data are still compared.
    if here.key or running.key or not _was_followed(ours) or not _was_followed(theirs):
        ours, theirs = _options(ours), _options(theirs)
    return differences(ours, theirs, server_pid)


def _options(entries: list[Entry]) -> list[Entry]:
    return [one for one in entries if one.label.endswith("=")]


def _was_followed(entries: list[Entry]) -> bool:
    return len(_options(entries)) < len(entries)


def _warn_of_options(name: str, asked: str, there: str, server_pid: int) -> None:
    # What both have in common is not mentioned.
    ours, theirs = asked.split("\n"), there.split("\n")
    _log.warning(
        'feed "%s" runs already (pid %d), started with %s\n'
        "  what was asked for here does not count: %s\n"
        "  it can, once that server has gone: feedline stop %s",
        name,
        server_pid,
        ", ".join(one for one in theirs if one not in ours) or "less",
        ", ".join(one for one in ours if one not in theirs) or "less",
        name,
    )
