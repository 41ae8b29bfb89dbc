"""What counts so far: each value with its label, and what came of it in the end."""

from __future__ import annotations

import argparse
import builtins
import dataclasses
import os
import pathlib
import re
import types
from collections.abc import Callable
from typing import Any

from feedline._identity.certainty import Certainty, speaks_of_training
from feedline._identity.digests import Digester, Meet
from feedline._identity.entries import Entry, folded
from feedline._identity.origin import is_user_module, library_bases, package_version
from feedline._identity.shown import shown
from feedline._identity.values import Atom, Known, Maybe

ABSENT = "(not there)"
# A configuration with more entries than this is compared as one.
_MOST_FIELDS = 200
_LONGEST_PATH = 1000


class Recorder:
    """Labels, and the values, sources and versions that stand under them."""

    def __init__(
        self,
        root_globals: dict[str, Any],
        meet: Meet,
        meet_container: Callable[[Any], bool],
        use_target: Callable[[str], None],
    ) -> None:
        """Begin with nothing; names of ``root_globals`` need no module before them.

        ``meet`` and ``meet_container`` are told of what a digest comes across (``Digester``),
        ``use_target`` of what a configuration names for a library to make.
        """
        self._use_target = use_target
        self.certainty = Certainty()
        # Labels of what surely counts.
        self._sure: set[str] = set()
        # The function that is followed first.
        self.root: Any = None
        self._root_globals = root_globals
        self._root_name = str(root_globals.get("__name__", "__main__"))
        # By label: different things may have one, and are numbered.
        self._values: dict[str, list[Any]] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._owners: dict[str, dict[int, int]] = {}
        self._texts: dict[str, Entry] = {}
        # What has an address somewhere must not go away meanwhile.
        self.alive: list[Any] = []
        # Labels of fields that the user's code sets on objects that exist already, and of dicts
        # and lists that it adds to.
        self.lazy: set[str] = set()
        self._caches: set[str] = set()
        # Labels of what a library was given, and which.
        self._given_to: dict[str, str] = {}
        self._digester = Digester(meet, meet_container, self._root_name)

    def distinct(self, label: str, owner: object) -> str:
        """The label of something that belongs to an object; other objects' are numbered."""
        self.alive.append(owner)
        owners = self._owners.setdefault(label, {})
        number = owners.setdefault(id(owner), len(owners) + 1)
        return label if number == 1 else f"{label} ({number})"

    def known(self, value: Any, label: str) -> Known:
        self.alive.append(value)
        return Known(value, label)

    def global_label(self, name: str, globals_: dict[str, Any]) -> str:
        module = globals_.get("__name__")
        is_root = globals_ is self._root_globals or module in ("__main__", self._root_name)
        return name if is_root else f"{module}.{name}"

    def label_of(self, function: types.FunctionType) -> str:
        name = function.__qualname__.replace("<locals>.", "")
        if function is self.root:
            name = function.__name__  # wherever it is shared
        is_root = function.__module__ in ("__main__", None, self._root_name)
        return name if is_root else f"{function.__module__}.{name}"

    def label_of_object(self, owner: Any) -> str:
        if isinstance(owner, type):
            return owner.__qualname__
        return self.distinct(type(owner).__qualname__, owner)

    def put(self, label: str, value: Any) -> None:
        """A value counts, under a label."""
        if self.certainty.is_sure:
            self._sure.add(label)
        values = self._values.setdefault(label, [])
        if not any(one is value for one in values[-8:]):
            values.append(value)

    def say_opaque(self, label: str, what: str) -> None:
        self._digester.say_opaque(label, what)

    def note_absent(self, label: str) -> None:
        self._note(Entry(label, ABSENT, ABSENT))

    def note_path(self, value: Any, label: str) -> None:
        """A path that is relative means another file elsewhere; so does a list of them."""
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if not isinstance(value, str | pathlib.PurePath) or not 0 < len(str(value)) < _LONGEST_PATH:
            return
        text = str(value)
        if "\n" not in text and "\0" not in text and not os.path.isabs(text):
            path = os.path.realpath(text)
            self._note(Entry(label, path, path, "path"))

    def _note(self, entry: Entry) -> None:
        known = self._texts.get(entry.label)
        is_sure = self.certainty.is_sure or (known is not None and known.is_sure)
        self._texts[entry.label] = (known or entry)._replace(is_sure=is_sure)

    def note_source(self, label: str, text: str, digest: str) -> None:
        """The source of a function; two of one name are told apart by their order."""
        number, name = 1, f"source of {label}"
        while name in self._texts and self._texts[name].digest != digest:
            number += 1
            name = f"source of {label} ({number})"
        self._texts[name] = Entry(name, text, digest)

    def note_code(self, label: str, code: Any) -> None:
        """A library's class or function that a name of the user's stands for."""
        name = getattr(code, "__qualname__", None) or getattr(code, "__name__", None)
        if not label or not isinstance(name, str) or getattr(builtins, label, None) is code:
            return
        owner = getattr(code, "__module__", None) or type(getattr(code, "__self__", None)).__name__
        found, number, place = f"{owner}.{name}", 1, label
        while place in self._texts and self._texts[place].digest != found:
            number += 1
            place = f"{label} ({number})"
        # One job may not come to call it.
        self._texts[place] = Entry(place, found, found, "lazy")

    def note_bases(self, label: str, cls: type) -> None:
        """What a class of the user's has from libraries: that has no source of its own."""
        names = [f"{one.__module__}.{one.__qualname__}" for one in library_bases(cls)]
        if label and names:
            place, found = f"bases of {label}", ", ".join(names)
            known = self._texts.get(place)
            if known is not None and known.digest != found:
                place = f"bases of {label} ({found})"
            self._texts[place] = Entry(place, found, found, "lazy")

    def note_package(self, module: str) -> None:
        if is_user_module(module):
            return
        found = package_version(module)
        if found is not None:
            label = f"version of {found[0]}"
            self._texts[label] = Entry(label, found[1], found[1])

    def note_given(self, to: types.FunctionType | type, given: Maybe) -> None:
        """Remember whose fault it is that all of something counts."""
        for one in given:
            if isinstance(one, Known) and one.label:
                self._given_to.setdefault(one.label, f"{to.__module__}.{to.__qualname__}")

    def note_filled(self, base: Atom | None) -> None:
        """The user's code adds to a list or a dict that exists: how far it got may differ."""
        if isinstance(base, Known) and "." in base.label and isinstance(base.value, dict | list):
            self._caches.add(base.label)

    def note_file(self, label: str, text: str, digest: str, *, is_content: bool) -> None:
        """A file that is read. One of the two loaders may find none."""
        self._texts[label] = Entry(label, text, digest, "lazy" if is_content else "unsure")

    def forget(self, label: str) -> None:
        """What was read of a file that can't be compared."""
        for one in [one for one in self._texts if _belongs(one, label)]:
            del self._texts[one]

    def digest_all(self, follow_all: Callable[[], None]) -> None:
        """Digest what has counted, until there is nothing more: digests meet further objects."""
        done: dict[str, int] = {}
        while True:
            follow_all()
            new = [label for label, one in self._values.items() if done.get(label, 0) < len(one)]
            if not new:
                break
            # First what surely counts, for so does whatever it leads to.
            sure = [label for label in new if label in self._sure]
            for label in sure or new:
                first, done[label] = done.get(label, 0), len(self._values[label])
                with self.certainty.of(label in self._sure):
                    for value in self._values[label][first : done[label]]:
                        self._enter(self._numbered(label, value), value, 3)

    def entries(self) -> list[Entry]:
        for label, (what, digest) in self._digester.unsure.items():
            self._texts[label] = Entry(label, what, digest, "unsure")
        return folded(sorted(map(self._of_kind, self._texts.values())))

    def _of_kind(self, entry: Entry) -> Entry:
        kind = entry.kind or self._kind(entry.label)
        is_absent = kind == "lazy" and entry.digest == ABSENT
        return entry._replace(kind=kind, digest="" if is_absent else entry.digest)

    def _numbered(self, label: str, value: Any) -> str:
        """The label, with a number if there are several values of that label."""
        values = self._values[label]
        if len(values) == 1:
            return label
        numbers = self._numbers.setdefault(label, {self._digester.digest(values[0], label): 1})
        number = numbers.setdefault(self._digester.digest(value, label), len(numbers) + 1)
        return label if number == 1 else f"{label} ({number})"

    def _enter(self, label: str, value: Any, depth: int, why: str = "") -> None:
        fields = _fields_of(value) if depth else None
        if fields is None:
            kind = self._kind(label)
            is_empty = value is None or (isinstance(value, list | dict | set) and not value)
            is_unfilled = kind == "lazy" and is_empty
            digest = "" if is_unfilled else self._digester.digest(value, label)
            parts = tuple(self._digester.parts(value))
            if label in self._given_to and hasattr(value, "keys"):
                why = f"all of {label} goes to {self._given_to[label]}"
            known = self._texts.get(label)
            is_sure = self.certainty.is_sure and not (why and speaks_of_training(label))
            is_sure = is_sure or label in self._sure or (known is not None and known.is_sure)
            self._texts[label] = Entry(label, shown(value), digest, kind, why, parts, is_sure)
            return
        if label in self._given_to:
            why = f"all of {label} goes to {self._given_to[label]}"
        for name, one in fields:
            inside = f"{label}[{name!r}]" if isinstance(value, dict) else f"{label}.{name}"
            if name == "_target_" and isinstance(one, str):
                self._use_target(one)
            self._enter(inside, one, depth - 1, why)

    def _kind(self, label: str) -> str:
        """Fields that the loader's own code sets are filled when it runs: before or after."""
        for kind, labels in (("unsure", self._caches), ("lazy", self.lazy)):
            if any(_belongs(label, one) for one in labels):
                return kind
        return ""

    @property
    def opaque(self) -> dict[str, str]:
        return self._digester.opaque


def _belongs(label: str, owner: str) -> bool:
    """Whether a label is that of an object, or of a part of it."""
    bare = re.sub(r"^(class of |items of |order of |\w+\(|'[^']*' in )", "", label)
    return bare == owner or bare.startswith(
        tuple(f"{owner}{end}" for end in (".", "[", ")", " (", ","))
    )


def _fields_of(value: Any) -> list[tuple[str, Any]] | None:
    """The entries of a configuration, so that a message can name the one that differs."""
    found: Any = None
    if type(value) is dict:
        found = value
    elif isinstance(value, argparse.Namespace | types.SimpleNamespace):
        found = vars(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = vars(value) if hasattr(value, "__dict__") else None
    is_one = found and len(found) <= _MOST_FIELDS and all(isinstance(key, str) for key in found)
    return list(found.items()) if is_one else None
