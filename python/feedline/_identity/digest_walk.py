"""A walk through one object: what it is made of, piece by piece, into one digest."""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import logging
import pathlib
import pickle
import random
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from feedline._identity import sources
from feedline._identity.arrays import add_bytes, add_numpy, add_stacked, add_torch
from feedline._identity.data_loaders import OF_A_RUN, is_data_loader
from feedline._identity.generators import add_unsure_generator, is_of_the_process
from feedline._identity.origin import is_container, is_user_class, is_user_function
from feedline._identity.parts import (
    MOST_DEPTH,
    MOST_ELEMENTS,
    MOST_PARTS,
    MOST_SHOWN,
    Part,
    is_worth_showing,
)
from feedline._identity.plain import LONG, PLAIN, NotPlainError, dumped
from feedline._identity.shown import BY_REPR, counted, shown, type_name

if TYPE_CHECKING:
    from feedline._identity.digests import Digester

_MOST_DEPTH = 100
# What says nothing about what is loaded.
_SILENT: tuple[type, ...] = (
    *(type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event),
    *(threading.Semaphore, threading.local, threading.Thread, logging.Logger, logging.Handler),
    *(weakref.ref, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
)


class Walk:
    """Digests an object; what it meets of the user's goes to ``Digester.meet``."""

    def __init__(self, digester: Digester) -> None:
        """Nothing was met yet."""
        self.digester = digester
        self.hasher = hashlib.blake2b(digest_size=12)
        # By address: digests of what was seen, and the depths of what is being walked through.
        self._known: dict[int, bytes] = {}
        self._above: dict[int, int] = {}
        self.parts: list[Part] = []
        self._alive: list[Any] = []

    def named(self, kind: type) -> str:
        return type_name(kind).removeprefix(f"{self.digester.root}.")

    def put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.hasher.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any, label: str, depth: int) -> None:
        """Digest a value as the next part of what it belongs to."""
        kind = type(value)
        if value is None or kind in (bool, int, float, bytes):
            self.put(kind.__name__, repr(value))
        elif kind is str:
            self.put("str", value)
        else:
            self.put(self.apart(value, label, depth))

    def apart(self, value: Any, label: str, depth: int) -> bytes:
        """Digest a value by itself: where it stands, and who else refers to it, says nothing."""
        if id(value) in self._known:
            return self._known[id(value)]
        if id(value) in self._above:
            return f"{depth - self._above[id(value)]} above".encode()
        if depth > _MOST_DEPTH:
            self.digester.say_opaque(label, f"what is nested more than {_MOST_DEPTH} deep")
            return type_name(type(value)).encode()
        if not self.digester.counts(label):
            return type_name(type(value)).encode()
        self._alive.append(value)
        self._above[id(value)] = depth
        outer, self.hasher = self.hasher, hashlib.blake2b(digest_size=12)
        try:
            self._walk(value, label, depth)
            found = self._known[id(value)] = self.hasher.digest()
            return found
        finally:
            del self._above[id(value)]
            self.hasher = outer

    def _walk(self, value: Any, label: str, depth: int) -> None:
        kind = type(value)
        if value is None or kind in PLAIN:
            self.add(value, label, depth)
        elif kind in (list, tuple):
            self.put(kind.__name__, str(len(value)))
            if self._all_at_once(value, label):
                return
            for number, one in enumerate(value):
                self.add(one, f"{label}[{number}]", depth + 1)
        elif kind is dict:
            if not self._all_at_once(value, label):
                self._mapping("dict", value, label, depth)
        elif kind in (set, frozenset):
            self.put("set")
            if not self._all_at_once(value, label):
                self._set(value, label, depth)
        elif is_of_the_process(value):
            self.put("a generator of the process")
        elif isinstance(value, random.Random):
            add_unsure_generator(self, value, value.getstate, label)
        elif not (self._code(value, label) or self._data(value, label, depth)):
            self._object(value, label, depth)

    def _set(self, values: Iterable[Any], label: str, depth: int) -> None:
        """Go by digests, since the order of a set is another one in each process."""
        found = []
        meet = self.digester.meet
        for one in values:
            met: list[tuple[Any, str]] = []

            def note(value: Any, label: str, met: list[tuple[Any, str]] = met) -> bool:
                met.append((value, label))
                return not is_container(type(value))

            self.digester.meet = note
            try:
                digest = self.apart(one, label, depth + 1)
                # Two that are alike but for what they hold are told apart by that.
                self.digester.meet = lambda value, label: True
                walk = Walk(self.digester)
                walk.add(_held(one), label, depth + 1)
                found.append((digest, walk.hasher.digest(), met))
            finally:
                self.digester.meet = meet
        for digest, _, met in sorted(found, key=lambda one: one[:2]):
            self.put(digest)
            for value, where in met:
                meet(value, where)

    def _all_at_once(self, value: Any, label: str) -> bool:
        """Digest long lists and dicts of plain values, or of small arrays, in native code."""
        if self.digester.meet_container(value) or len(value) <= LONG:
            return False
        try:
            self.put("plain", dumped(self._states(value, label)))
            return True
        except (NotPlainError, RecursionError):
            pass
        return isinstance(value, list | tuple) and add_stacked(self, value, label)

    def _states(self, values: Any, label: str) -> Any:
        """Of a list of objects that just hold values, what they hold."""
        kinds = set(map(type, values)) if type(values) in (list, tuple) else set()
        kind = next(iter(kinds), object)
        as_all_do = all(
            _inherits(kind, name) for name in ("__reduce_ex__", "__reduce__", "__getstate__")
        )
        if len(kinds) > 1 or not is_user_class(kind) or not is_container(kind) or not as_all_do:
            return values
        if issubclass(kind, enum.Enum) or any(
            "__slots__" in vars(one) for one in kind.__mro__[:-1]
        ):
            return values
        self.put("objects", self.named(kind))
        self.digester.meet(values[0], label)
        return [*map(vars, values)]

    def _mapping(self, name: str, items: dict[Any, Any], label: str, depth: int) -> None:
        """Compare as dicts do: the order doesn't count."""
        pairs = []
        for key, one in items.items():
            is_field = name != "dict" and isinstance(key, str)
            inside = f"{label}.{key}" if is_field else f"{label}[{shown(key, 40)}]"
            if is_field:
                self._note(one, inside, depth + 1)
            pairs.append((self.apart(key, label, depth + 1), one, inside))
        self.put(name, str(len(pairs)))
        for key_digest, one, inside in sorted(pairs, key=lambda pair: pair[0]):
            self.put(key_digest)
            self.add(one, inside, depth + 1)

    def _note(self, value: Any, label: str, depth: int) -> None:
        """Keep what a field holds, for messages. Its digest is kept, too, for who adds it next."""
        if depth > MOST_DEPTH or len(self.parts) >= MOST_PARTS:
            return
        what = shown(value) if is_worth_showing(value) else counted(value)
        self.parts.append(Part(label, what, self.apart(value, label, depth).hex()))
        if isinstance(value, list | tuple) and len(value) <= MOST_ELEMENTS:
            for number, one in enumerate(value):
                self._note(one, f"{label}[{number}]", depth + 1)
        if type(value) is dict and len(value) <= MOST_SHOWN:
            for key, one in value.items():
                if type(key) is str:
                    self._note(one, f"{label}[{key!r}]", depth + 1)

    def _code(self, value: Any, label: str) -> bool:
        """Functions, classes and modules: by name, and the user's by their source, elsewhere."""
        if isinstance(value, types.ModuleType):
            self.put("module", value.__name__)
        elif isinstance(value, type):
            self.put("class", self.named(value))
        elif isinstance(value, types.FunctionType):
            self.put("function", _function_token(value))
        elif isinstance(value, types.BuiltinFunctionType):
            self.put("builtin", str(value.__qualname__))
            owner = value.__self__
            if owner is None or isinstance(owner, types.ModuleType | type):
                return True
            self.add(owner, label, 1)
        elif isinstance(value, types.MethodType):
            self.put("method", _function_token(value.__func__))
            self.add(value.__self__, f"{label}.__self__", 1)
            self.digester.meet(value, label)
            return True
        else:
            return False
        self.digester.meet(value, label)
        return True

    def _data(self, value: Any, label: str, depth: int) -> bool:
        """What has a content of its own kind."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            self.put("enum", self.named(kind), value.name)
        elif isinstance(value, pathlib.PurePath):
            self.put("path", str(value))
        elif isinstance(value, re.Pattern):
            self.put("pattern", repr(value.pattern), str(value.flags))
        elif isinstance(value, BY_REPR):
            self.put(type_name(kind), repr(value))
        elif kind in (bytearray, memoryview) or isinstance(value, pickle.PickleBuffer):
            raw = value.raw() if isinstance(value, pickle.PickleBuffer) else memoryview(value)
            self.put("bytes")
            add_bytes(self, raw.cast("B") if raw.contiguous else memoryview(bytes(raw)), label)
        elif isinstance(value, _SILENT):
            self.put("silent", type_name(kind))
        elif isinstance(value, io.IOBase):
            self.put("file")
            if value not in (sys.stdin, sys.stdout, sys.stderr):
                self.digester.say_opaque(label, "an open file")
        elif isinstance(value, functools.partial):
            self.put("partial")
            for part, one in (
                ("func", value.func),
                ("args", value.args),
                ("keywords", value.keywords),
            ):
                self.add(one, f"{label}.{part}", depth + 1)
        else:
            return add_numpy(self, value, label, depth) or add_torch(self, value, label, depth)
        return True

    def _object(self, value: Any, label: str, depth: int) -> None:
        """An instance of any class, by its class and its state."""
        kind = type(value)
        self.put("object", self.named(kind))
        if depth and is_user_class(kind):
            if self.digester.meet(value, label):
                return
        self._content(value, label, depth)
        if _inherits(kind, "__reduce_ex__") and _inherits(kind, "__reduce__"):
            if _inherits(kind, "__getstate__"):
                self._fields(value, label, depth)
            else:
                self._state(kind, value.__getstate__(), label, depth)
            return
        try:
            reduced = value.__reduce_ex__(5)
        except Exception:
            self._fields(value, label, depth)
            return
        if isinstance(reduced, str):
            self.put(reduced)
            return
        parts = [*reduced, *[None] * (6 - len(reduced))]
        self.add(parts[0], label, depth + 1)
        for part in (parts[1], parts[2]):
            self._state(kind, part, label, depth)
        for content in parts[3:5]:
            self.add(list(content) if content is not None else None, label, depth + 1)

    def _content(self, value: Any, label: str, depth: int) -> None:
        """What a subclass of a built-in type holds as that."""
        for base in (dict, list, tuple, set, str, bytes, int, float):
            if isinstance(value, base):
                make: Any = base
                self.add(make(value), label, depth + 1)

    def _fields(self, value: Any, label: str, depth: int) -> None:
        kind = type(value)
        fields = dict(getattr(value, "__dict__", None) or {})
        for cls in kind.__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else tuple(slots):
                if slot not in ("__dict__", "__weakref__"):
                    try:
                        fields.setdefault(slot, getattr(value, slot))
                    except AttributeError:
                        continue
        is_native = not fields and not (kind.__flags__ & (1 << 9)) and kind is not object
        if is_native and not isinstance(
            value, dict | list | tuple | set | str | int | float | bytes
        ):
            self.digester.say_opaque(label, f"a {type_name(kind)}")
        self._state(kind, fields, label, depth)

    def _state(self, kind: type, state: Any, label: str, depth: int) -> None:
        if type(state) is dict:
            if is_data_loader(kind):
                state = {key: one for key, one in state.items() if key not in OF_A_RUN}
            self._mapping("state", state, label, depth)
        else:
            self.add(state, label, depth + 1)


def _held(value: Any) -> Any:
    """What a closure or an object holds."""
    if not isinstance(value, types.FunctionType):
        return dict(getattr(value, "__dict__", None) or {})
    held = [value.__defaults__, value.__kwdefaults__]
    for cell in value.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # it has no value yet
            held.append(None)
    return held


def _function_token(function: Any) -> str:
    if not isinstance(function, types.FunctionType):
        return type_name(type(function))
    if not is_user_function(function):
        return f"{function.__module__}.{function.__qualname__}"
    node = sources.find(function.__code__, is_sent=function.__module__ == "__main__")
    return sources.digest_of_code(function.__code__) if node is None else sources.digest_of(node)


def _inherits(kind: type, name: str) -> bool:
    """Whether a class does as every object does."""
    return getattr(kind, name, None) is getattr(object, name)
