"""Files that the loader's own code reads: by their content, where their paths are known.

A configuration (JSON, TOML, YAML) is a value like any other: only the entries that are used count.

A file that the same code writes first can't be compared, for it isn't there yet or is an old one:
that is said. What a dataset's library reads from the disk isn't looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import stat
import sys
import tomllib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feedline._identity.folders import Folders
from feedline._identity.origin import is_user_function
from feedline._identity.part import Part
from feedline._identity.telling import SINK
from feedline._identity.values import (
    UNKNOWN,
    Atom,
    Derived,
    Known,
    Maybe,
    derived,
    key_of,
    without_choices,
)

if TYPE_CHECKING:
    from feedline._identity.follow import Follower

# Of larger files, and of what comes after so many bytes, only size and time are compared.
_MOST_BYTES = 16 << 20
_MOST_BYTES_OF_ALL = 64 << 20
_MOST_FILES = 1000
# A configuration that is longer is compared as one.
_MOST_PARSED_BYTES = 1 << 20
# What libraries call functions that read a file, and such that write one.
_READING = re.compile(r"(load|read|open|fromfile|genfromtxt)")
_WRITING = re.compile(r"(save|dump|write|to_|imsave)")
_READING_METHODS = {"read_text", "read_bytes"}
_WRITING_METHODS = {"write_text", "write_bytes"}


@dataclass(frozen=True)
class Content:
    """What a file holds, as an object that exists: counts once it is used."""

    path: str


class Files(Part):
    """The files that are read and written, until it is known which of them can be compared."""

    def __init__(self, follower: Follower) -> None:
        """Nothing was read or written yet."""
        super().__init__(follower)
        # Paths, or whatever else stands for one that isn't known.
        self._read: set[Any] = set()
        self._written: set[Any] = set()
        # Paths of files of which all counts.
        self._used: dict[str, None] = {}
        self._folders = Folders()

    def open(self, path: Maybe, mode: Maybe | None) -> Maybe | None:
        """``open(path, mode)``; None if what it gives isn't known."""
        modes = [one.value for one in without_choices(mode or ()) if isinstance(one, Known)]
        is_known = mode is None or len(modes) == len(without_choices(mode)) > 0
        texts = [one for one in modes if isinstance(one, str)]
        writes = any(set(one) & set("wax+") for one in texts)
        if writes or not is_known:
            self._written |= set(_names(path))
        if is_known and writes and all(one[:1] in "wax" and "+" not in one for one in texts):
            return (SINK,)
        return self.read(path)

    def read(self, path: Maybe) -> Maybe | None:
        """The content of a file; None if the path isn't known."""
        self._read |= set(_names(path))
        paths = [_path(one) for one in without_choices(path)]
        self._follower.uses.use(path)
        if not paths or None in paths:
            return None
        return tuple(self._recorder.known(Content(str(one)), f"file {one}") for one in paths)

    def call_method(self, receiver: Atom, name: str, args: list[Maybe]) -> Maybe | None:
        """A method of a path; None for all others."""
        if name in _WRITING_METHODS:
            self._written |= set(_names((receiver,)))
        if name in _READING_METHODS and is_path(receiver):
            return derived(self.read((receiver,)) or ())
        if is_path(receiver):
            of_args = [_path(one) for maybe in args[:1] for one in without_choices(maybe)]
            self._folders.call(name, [_path(receiver), *of_args])
        if name == "open" and is_path(receiver):
            return self.open((receiver,), args[0] if args else None)
        return None

    def parse(self, parser: Any, given: Maybe) -> Maybe | None:
        """What ``json.load`` and its like make of a file that is there; None for all else."""
        parse = _parser(parser)
        sources = given[0].sources if len(given) == 1 and type(given[0]) is Derived else given
        content = sources[0].value if len(sources) == 1 and isinstance(sources[0], Known) else None
        if parse is None or not isinstance(content, Content):
            return None
        try:
            if os.stat(content.path).st_size > _MOST_PARSED_BYTES:
                return None
            with open(content.path, encoding="utf-8") as file:
                found = parse(file.read())
        except Exception:  # whatever it raises, the loader will see
            return None
        # It may be there in one of two jobs only.
        self._recorder.lazy.add(content.path)
        return (self._recorder.known(found, content.path),)

    def use(self, content: Content) -> None:
        """All of a file counts."""
        self._used.setdefault(content.path)

    def call_library(self, function: Any, args: list[Maybe]) -> None:
        """A library's function that is given a path: its name tells what it does."""
        kinds = (types.FunctionType, types.BuiltinFunctionType)
        if not isinstance(function, kinds) or function is open:
            return
        if isinstance(function, types.FunctionType) and is_user_function(function):
            return
        self.call_named(function.__name__, args)

    def call_named(self, name: str, args: list[Maybe]) -> None:
        """The same for anything that isn't the user's, by its name alone."""
        for maybe in args[:1]:
            several = without_choices(maybe)
            for known in map(_path, several) if several else (None,):
                self._folders.call(name, [known])
        for known in (_path(one) for maybe in args for one in without_choices(maybe)):
            if known is not None and _READING.match(name):
                self._read.add(known)
                self._used.setdefault(known)
            elif known is not None and _WRITING.match(name):
                self._written.add(known)

    def finish(self) -> None:
        """Compare what was only read; say of the rest that it can't be."""
        for path in self._read & self._written:
            label = path if isinstance(path, str) else "a file"
            self._recorder.forget(label)
            self._recorder.say_opaque(label, "make_loader writes it and reads it back")
        left = _MOST_BYTES_OF_ALL
        for path in list(self._used)[:_MOST_FILES]:
            if path not in self._written:
                left -= self._compare(path, left)
        for path, found in self._folders.listings().items():
            label = f"names in {path}"
            self._recorder.note_file(label, found.shown, found.digest, is_content=False)

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


def _parser(function: Any) -> Callable[[str], Any] | None:
    yaml: Any = sys.modules.get("yaml")
    safe_load = getattr(yaml, "safe_load", None)
    known: list[tuple[Any, Any]] = [(json.load, json.loads), (json.loads, json.loads)]
    known += [(tomllib.load, tomllib.loads), (tomllib.loads, tomllib.loads)]
    known += [(getattr(yaml, name, None), safe_load) for name in ("safe_load", "load", "full_load")]
    return next((parse for one, parse in known if one is function and one is not None), None)


def is_path(atom: Atom) -> bool:
    return isinstance(atom, Known | Derived) and isinstance(atom.value, pathlib.PurePath)


def _path(atom: Atom) -> str | None:
    value = atom.value if isinstance(atom, Known | Derived) else UNKNOWN
    return str(value) if isinstance(value, str | pathlib.PurePath) and str(value) else None
