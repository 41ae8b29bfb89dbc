"""Methods that aren't the user's: of texts and dicts, of parsers, of anything else."""

from __future__ import annotations

import datetime
import pathlib
import uuid
from collections.abc import Mapping

from feedline._identity.additions import takes_additions
from feedline._identity.command_line import Parser
from feedline._identity.data_loaders import what_is_loaded
from feedline._identity.files import Content
from feedline._identity.part import Part
from feedline._identity.telling import tells
from feedline._identity.values import (
    Array,
    Atom,
    Derived,
    Items,
    Known,
    LibraryMethod,
    Made,
    Maybe,
    Membership,
    Parent,
    Table,
    constants,
    derived,
    join,
    text_of,
)

_PLAIN: tuple[type, ...] = (
    *(str, bytes, int, float, complex, pathlib.PurePath, uuid.UUID),
    *(datetime.date, datetime.time, datetime.timedelta),
)
# What changes a folder that may be read later.
_MOVES = {"rename", "symlink_to", "hardlink_to", "link_to"}
_COMPUTING_METHODS = {
    name for kind in (str, bytes, pathlib.Path) for name in dir(kind) if name[0] != "_"
} - _MOVES


# What adds to a list, a set or a dict.
_ADDS = {"append", "appendleft", "add", "extend", "extendleft", "update", "insert"}
_SPLITS = {"split", "rsplit", "partition", "rpartition"}
# What only measures an array, and leaves it as it is.
_MEASURES = {
    *("sum", "mean", "std", "var", "min", "max", "median", "prod", "any", "all", "norm", "nunique"),
    *("argmax", "argmin", "count_nonzero", "item", "tolist", "numel", "nelement", "size", "dim"),
}


class LibraryMethods(Part):
    """What calling them reaches, and what they may return."""

    def call(self, atom: LibraryMethod, args: list[Maybe], keywords: dict[str, Maybe]) -> Maybe:
        receiver, name = atom.receiver, atom.name
        value = receiver.value if isinstance(receiver, Known) else None
        found = self._follower.files.call_method(receiver, name, args)
        if found is not None:
            return found
        if tells(atom):
            return ()
        if isinstance(receiver, Known):
            found = self._follower.standard_objects.call_method(receiver, name, args, keywords)
            if found is not None:
                return found
        if isinstance(value, Content):
            return derived((receiver,))  # what is read of a file, by whatever method
        inner = receiver.receiver if isinstance(receiver, Parent) else receiver
        if isinstance(inner, Made) and name == "__setattr__" and len(args) == 2:
            names = constants(args[0])
            if names is not None and all(isinstance(one, str) for one in names):
                for one in names:
                    self._follower.attributes.set_field(inner, str(one), args[1])
                return ()
        if isinstance(inner, Made) and inner.content is not None:
            receiver = inner.content
        if isinstance(receiver, Table) and name == "__init__":
            name = "update"
        if isinstance(receiver, Table) and name == "__setitem__" and len(args) == 2:
            self._effects.mutations += 1
            self._follower.containers.put_item(receiver, args[0], args[1])
            return ()
        if isinstance(receiver, Table) and name == "__getitem__" and args:
            return self._follower.containers.item(receiver, args[0])
        if isinstance(receiver, Table) and name == "__contains__" and args:
            return (Membership(args[0], containers=(receiver,)),)
        is_mapping = isinstance(receiver, Table) or (
            isinstance(receiver, Known) and (isinstance(value, Mapping) or hasattr(value, "keys"))
        )
        if is_mapping and name == "setdefault" and args and isinstance(receiver, Table):
            found = self._follower.containers.item(receiver, args[0])
            self._follower.containers.set_item(receiver, args[0], join(*args[1:2]))
            return join(found, *args[1:2])
        if isinstance(receiver, Known) and name == "setdefault" and len(args) == 2:
            if takes_additions(value):
                return self._follower.additions.set_default(receiver, args[0], args[1])
        if is_mapping and name in ("get", "pop", "setdefault") and args:
            self._effects.count += name != "get"
            return join(self._follower.containers.item(receiver, args[0]), *args[1:2])
        if is_mapping and name == "copy":
            return (self._follower.containers.copied(receiver),)
        if name in ("items", "values", "keys"):
            entries = self._follower.containers.entries_of(receiver, name)
            if entries is not None:
                return entries
        if isinstance(value, _PLAIN) and name not in _MOVES:
            return self._call_plain(receiver, name, args, keywords)
        if name in ("_asdict", "_replace") and hasattr(value, "_fields"):
            fields = {one: self._follower.attributes.get(receiver, one) for one in value._fields}  # type: ignore[union-attr]
            kind = dict if name == "_asdict" else tuple
            return (Table({**fields, **keywords}, kind=kind),)
        if isinstance(receiver, Derived) and name in _COMPUTING_METHODS:
            if isinstance(receiver.value, str):
                return self._call_plain(receiver, name, args, keywords)
            return derived((receiver,), *args, *keywords.values())
        if isinstance(receiver, Items) and name == "copy":
            return (self._follower.containers.copied(receiver),)
        if isinstance(receiver, Table) and name == "update":
            self._effects.mutations += 1
            for one in args:
                self._follower.containers.merge(receiver, one)
            for key, one in keywords.items():
                self._follower.uses.add_entry(receiver, key, one)
            return ()
        if isinstance(receiver, Items) and name in _ADDS:
            self._effects.mutations += 1
            for one in args:
                self._follower.uses.add_item(
                    receiver,
                    self._follower.containers.elements(one)
                    if name in ("extend", "extendleft", "update")
                    else one,
                )
            return ()
        if isinstance(receiver, Known) and name in _ADDS and takes_additions(value):
            self._add(receiver, args, keywords)
            return ()
        if isinstance(receiver, Array | Derived) and name in _MEASURES and "out" not in keywords:
            return derived((receiver,), *args, *keywords.values())
        self._effects.outside += not isinstance(receiver, Array)
        self._follower.files.call_named(name, args)
        if isinstance(receiver, Items) and name in ("pop", "popleft"):
            return join(*receiver.items)
        if isinstance(receiver, Parser):
            return self._declare(receiver, name, args, keywords)
        if isinstance(receiver, Array):
            for one in join(*args) if name == "shuffle" else ():
                self._follower.uses.tell(one, (receiver,))
            self._follower.uses.add_source(receiver, join(*args, *keywords.values()))
            return derived((receiver,))
        if isinstance(receiver, Items | Table | Derived):
            # Whatever it does, with what it is given: to the container, or with it.
            given = join(*args, *keywords.values())
            self._follower.uses.use_beside(given)
            self._follower.uses.tell(receiver, given)
            return derived((receiver,), given)
        if name in _ADDS:
            self._recorder.note_filled(receiver)
        # What a base class is told when an object is made says nothing of the object's methods.
        if isinstance(receiver, Parent) and name in ("__init__", "__new__"):
            owner = receiver.owner if isinstance(receiver.owner, type) else object
            return self._follower.uses.use_all(args, what_is_loaded(owner, keywords))
        for one in (receiver, *join(*args)) if name == "shuffle" else (receiver,):
            self._follower.uses.tell(one, join((receiver,), *args, *keywords.values()))
        return self._follower.uses.give((receiver,), args, keywords)

    def _add(self, receiver: Known, args: list[Maybe], keywords: dict[str, Maybe]) -> None:
        """``append`` and its like, of a container that exists."""
        entries = dict(keywords)
        for one in args:
            if isinstance(receiver.value, dict):
                entries.update(self._follower.containers.spread_keywords(one))
            else:
                self._follower.additions.add(receiver, None, one)
        for key, value in entries.items():
            self._follower.additions.add(receiver, (Known(key, ""),), value)

    def _declare(
        self, parser: Parser, name: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        """``add_argument`` and its like."""
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return (parser,)
        names = [constants(one) for one in args]
        given = {key: constants(one) for key, one in keywords.items() if key != "default"}
        flat = [one[0] for one in names if one and len(one) == 1]
        shape = {key: one[0] for key, one in given.items() if one and len(one) == 1}
        is_clear = all(key in shape for key in ("dest", "nargs", "action") if key in given)
        if name == "add_argument" and is_clear and len(flat) == len(args):
            parser.declare(flat, shape, keywords.get("default", (Known(None, ""),)))
        else:
            parser.is_clear = False
            self._follower.uses.use_all(args, keywords)
        return ()

    def _call_plain(
        self, receiver: Atom, name: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        """A method of a text or a number: what it gives depends on nothing else."""
        text = text_of((receiver,))
        found_args = [constants(one) for one in args]
        given = [one[0] for one in found_args if one and len(one) == 1]
        everything: list[Maybe] = [(receiver,), *args, *keywords.values()]
        if text is None or keywords or len(given) != len(args):
            return derived(*everything)
        try:
            found = getattr(text, name)(*given)
        except Exception:
            return derived(*everything)
        if isinstance(found, str):
            return derived(*everything, value=found)
        if isinstance(found, list | tuple) and all(isinstance(one, str) for one in found):
            if name in _SPLITS:
                # The separator isn't used for anything else, as a path for instance.
                everything = [(receiver,)]
            return (Items([derived(*everything, value=one) for one in found]),)
        return derived(*everything)
