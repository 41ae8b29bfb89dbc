"""Files that the loader's own code reads: by their content, where their paths are known.

A file that the same code writes first can't be compared, for it isn't there yet or is an old one:
that is said. What a dataset's library reads from the disk isn't looked at.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import stat
import types
from typing import TYPE_CHECKING, Any

from feedline._identity.origin import is_user_function
from feedline._identity.part import Part
from feedline._identity.values import UNKNOWN, Atom, Derived, Known, Maybe, key_of, without_choices

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

# Of larger files, and of what comes after so many bytes, only size and time are compared.
_MOST_BYTES = 16 << 20
_MOST_BYTES_OF_ALL = 64 << 20
_MOST_FILES = 1000
# What libraries call functions that read a file, and such that write one.
_READING = re.compile(r"(load|read|open|fromfile|genfromtxt)")
_WRITING = re.compile(r"(save|dump|write|to_|imsave)")
_READING_METHODS = {"read_text", "read_bytes"}
_WRITING_METHODS = {"write_text", "write_bytes"}


class Files(Part):
    """The files that are read and written, until it is known which of them can be compared."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was read or written yet."""
        super().__init__(follower)
        # Paths, or whatever else stands for one that isn't known.
        self._read: dict[Any, None] = {}
        self._written: set[Any] = set()

    def open(self, path: Maybe, mode: Maybe | None) -> bool:
        """``open(path, mode)``; says whether that is to write."""
        modes = [one.value for one in without_choices(mode or ()) if isinstance(one, Known)]
        is_known = mode is None or len(modes) == len(without_choices(mode)) > 0
        texts = [one for one in modes if isinstance(one, str)]
        writes = any(set(one) & set("wax+") for one in texts)
        if writes or not is_known:
            self._written |= set(_names(path))
        if not is_known or not texts or any("r" in one or "+" in one for one in texts):
            self._read.update(dict.fromkeys(_names(path)))
        return writes and all(one[:1] in "wax" for one in texts)

    def call_method(self, receiver: Atom, name: str) -> None:
        """A method of a path."""
        if name in _READING_METHODS:
            self._read.update(dict.fromkeys(_names((receiver,))))
        elif name in _WRITING_METHODS:
            self._written |= set(_names((receiver,)))

    def call_library(self, function: Any, args: list[Maybe]) -> None:
        """A library's function that is given a path: its name tells what it does."""
        kinds = (types.FunctionType, types.BuiltinFunctionType)
        if not isinstance(function, kinds) or function is open:
            return
        if isinstance(function, types.FunctionType) and is_user_function(function):
            return
        name = function.__name__
        for known in (_path(one) for maybe in args for one in without_choices(maybe)):
            if known is not None and _READING.match(name):
                self._read.setdefault(known)
            elif known is not None and _WRITING.match(name):
                self._written.add(known)

    def finish(self) -> None:
        """Compare what was only read; say of the rest that it can't be."""
        left = _MOST_BYTES_OF_ALL
        for number, path in enumerate(self._read):
            if path in self._written:
                label = f"file {path}" if isinstance(path, str) else "a file"
                self._recorder.say_opaque(label, "make_loader writes it and reads it back")
            elif isinstance(path, str) and number < _MOST_FILES:
                left -= self._compare(path, left)

    def _compare(self, path: str, most_bytes: int) -> int:
        """Compare a file, by its content if that isn't too long; gives how much was read."""
        label = f"file {path}"
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                return 0
            shown = f"{found.st_size:,} B"
            if found.st_size > min(_MOST_BYTES, most_bytes):
                what = f"{found.st_size} {found.st_mtime_ns}"
                self._recorder.note_file(label, shown, what, is_content=False)
                return 0
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError):  # no path at all, or one that leads nowhere yet
            return 0
        self._recorder.note_file(label, shown, digest, is_content=True)
        return found.st_size


def _names(path: Maybe) -> list[Any]:
    """The paths that something may be; a name that stands for one that isn't known."""
    several = without_choices(path)
    return [key_of(one) if _path(one) is None else _path(one) for one in several] or [()]


def is_path(atom: Atom) -> bool:
    return isinstance(atom, Known | Derived) and isinstance(atom.value, pathlib.PurePath)


def _path(atom: Atom) -> str | None:
    value = atom.value if isinstance(atom, Known | Derived) else UNKNOWN
    return str(value) if isinstance(value, str | pathlib.PurePath) and str(value) else None
