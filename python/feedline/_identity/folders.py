"""Folders that the loader's own code lists: by the names in them.

A difference is said and isn't an error: other files may have come that the loader leaves out. Where
a list leads to further folders whose names aren't known before, the times of these count, too.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import time
from typing import NamedTuple

_LISTING = {"listdir", "scandir", "walk", "fwalk", "glob", "iglob", "rglob", "iterdir"}
_DEEP = {"walk", "fwalk", "rglob"}
_MOST_NAMES = 100_000
_MOST_FOLDERS = 10_000


class Listing(NamedTuple):
    """What a message says of a folder, and what is compared."""

    shown: str
    digest: str


class Folders:
    """Collects folders, until it is known how much of them counts."""

    def __init__(self) -> None:
        """Nothing was listed yet."""
        # By path or pattern: whether what lies deeper counts as well.
        self._listed: dict[str, bool] = {}
        self._is_deep = False

    def call(self, name: str, paths: list[str | None]) -> None:
        """Something of this name was called with these paths, some of which aren't known."""
        if name not in _LISTING:
            return
        if None in paths or name in _DEEP:
            self._is_deep = True
        known = [path for path in paths if path is not None]
        if known:
            self._listed[os.path.join(*known)] = name in _DEEP

    def listings(self) -> dict[str, Listing]:
        """What stands in each folder now; one that isn't there has nothing."""
        found = {}
        for path in self._listed:
            try:
                found[path] = _listing(path, is_deep=self._is_deep or "**" in path)
            except (OSError, ValueError):
                continue
        return found


def _listing(path: str, *, is_deep: bool) -> Listing:
    hasher = hashlib.blake2b(digest_size=12)
    if glob.has_magic(path):
        folder = path
        while glob.has_magic(folder):
            folder = os.path.dirname(folder)
        names = sorted(itertools.islice(glob.iglob(path), _MOST_NAMES))
    else:
        folder = path
        with os.scandir(path) as entries:
            names = sorted(one.name for one in itertools.islice(entries, _MOST_NAMES))
    times = [os.stat(folder or ".").st_mtime_ns]
    for name in names:
        hasher.update(name.encode("utf-8", "surrogateescape") + b"\0")
    if is_deep:
        with os.scandir(folder or ".") as entries:
            inside = [one for one in itertools.islice(entries, _MOST_NAMES) if one.is_dir()]
        for one in sorted(inside, key=lambda one: one.name)[:_MOST_FOLDERS]:
            times.append(one.stat().st_mtime_ns)
            hasher.update(f"{one.name} {times[-1]}\0".encode("utf-8", "surrogateescape"))
    changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(times) / 1e9))
    return Listing(f"{len(names):,} names, changed {changed}", hasher.hexdigest())
