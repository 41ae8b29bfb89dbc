"""Digests of objects that are equal in two processes if, and only if, the objects are.

Addresses, hash seeds and the order of sets don't count. What has no content that could be read (an
open file, an object of native code without a state) is named in ``opaque``, and counts by its type.
Nothing is imported for it, and nothing is called but what copying and pickling would call too.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import io
import logging
import os
import pathlib
import pickle
import random
import re
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from feedline._identity import sources
from feedline._identity.origin import is_container, is_user_class, is_user_function
from feedline._identity.plain import LONG, PLAIN, NotPlainError, combined, dumped

# Arrays up to this size are read whole; of larger ones, evenly spread parts.
_MOST_BYTES = 1 << 30
_PART_BYTES = 1 << 20
# More objects than this are not looked at.
_MOST_OBJECTS = 2_000_000
_MOST_DEPTH = 100
# What says nothing about what is loaded.
_SILENT: tuple[type, ...] = (
    *(type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event),
    *(threading.Semaphore, threading.local, threading.Thread, logging.Logger, logging.Handler),
    *(weakref.ref, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
)
_BY_REPR: tuple[type, ...] = (
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID),
    *(decimal.Decimal, fractions.Fraction, range, slice, complex, type(NotImplemented)),
)
# How a DataLoader works, not what it loads.
HOW_IT_LOADS = frozenset(
    {
        *("num_workers", "pin_memory", "pin_memory_device", "prefetch_factor", "timeout"),
        *("persistent_workers", "multiprocessing_context", "in_order"),
    }
)
OF_A_RUN = HOW_IT_LOADS | {"_iterator", "_DataLoader__multiprocessing_context"}
# A generator that nobody seeded has drawn its seed from the system: more bits than people type.
_TYPED_BITS = 64
# What the first word of a Mersenne Twister is that was seeded with many words.
_OF_MANY_WORDS = 0x80000000

# Arrays up to this size are copied together, so many at a time.
_SMALL_BYTES = 1 << 16
_TOGETHER = 4096

_SHOWN = (*PLAIN, list, tuple, dict, set, pathlib.PurePath)
_MOST_SHOWN = 40

# Told of what a digest only names; says whether it compares that itself.
Meet = Callable[[Any, str], bool]


class Digester:
    """Digests objects one after the other; tells ``meet`` of user's functions and objects."""

    def __init__(self, meet: Meet, root: str = "__main__") -> None:
        """Have ``meet(value, label)`` compare what a digest only names.

        Names of the module ``root`` are as those of a script.
        """
        self.meet = meet
        self.root = root
        self._objects = 0
        # By address: what was digested already.
        self._known: dict[int, tuple[Any, str]] = {}
        self.opaque: dict[str, str] = {}
        # By label: what tells nothing for sure if it differs, with what it is and its digest.
        self.unsure: dict[str, tuple[str, str]] = {}

    def digest(self, value: Any, label: str) -> str:
        """Whatever it is, and never an error."""
        if id(value) in self._known and self._known[id(value)][0] is value:
            return self._known[id(value)][1]
        walk = _Walk(self)
        try:
            walk.add(value, label, 0)
            found = walk.hasher.hexdigest()
        except Exception as error:  # a property, a __getstate__ or a __repr__ that raises
            self.say_opaque(label, f"a {_name(type(value))}, which raised {type(error).__name__}")
            found = _name(type(value))
        self._known[id(value)] = (value, found)
        return found

    def say_opaque(self, label: str, what: str) -> None:
        self.opaque.setdefault(label, what)

    def counts(self, label: str) -> bool:
        self._objects += 1
        if self._objects == _MOST_OBJECTS:
            self.say_opaque(label, f"more than {_MOST_OBJECTS:,} objects, of which the rest")
        return self._objects < _MOST_OBJECTS


class _Walk:
    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self.hasher = hashlib.blake2b(digest_size=12)
        # By address: digests of what was seen, and the depths of what is being walked through.
        self._known: dict[int, bytes] = {}
        self._above: dict[int, int] = {}
        self._alive: list[Any] = []

    def _named(self, kind: type) -> str:
        return _name(kind).removeprefix(f"{self._digester.root}.")

    def _put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.hasher.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any, label: str, depth: int) -> None:
        """Digest a value as the next part of what it belongs to."""
        kind = type(value)
        if value is None or kind in (bool, int, float, bytes):
            self._put(kind.__name__, repr(value))
        elif kind is str:
            self._put("str", value)
        else:
            self._put(self._apart(value, label, depth))

    def _apart(self, value: Any, label: str, depth: int) -> bytes:
        """Digest a value by itself: where it stands, and who else refers to it, says nothing."""
        if id(value) in self._known:
            return self._known[id(value)]
        if id(value) in self._above:
            return f"{depth - self._above[id(value)]} above".encode()
        if depth > _MOST_DEPTH:
            self._digester.say_opaque(label, f"what is nested more than {_MOST_DEPTH} deep")
            return _name(type(value)).encode()
        if not self._digester.counts(label):
            return _name(type(value)).encode()
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
            self._put(kind.__name__, str(len(value)))
            if self._all_at_once(value, label):
                return
            for number, one in enumerate(value):
                self.add(one, f"{label}[{number}]", depth + 1)
        elif kind is dict:
            if not self._all_at_once(value, label):
                self._mapping("dict", value, label, depth)
        elif kind in (set, frozenset):
            self._put("set")
            if not self._all_at_once(value, label):
                self._set(value, label, depth)
        elif _is_of_the_process(value):
            self._put("a generator of the process")
        elif isinstance(value, random.Random):
            self._maybe_seeded(value, value.getstate, label)
        elif not (self._code(value, label) or self._data(value, label, depth)):
            self._object(value, label, depth)

    def _set(self, values: Iterable[Any], label: str, depth: int) -> None:
        """Go by digests, since the order of a set is another one in each process."""
        found = []
        meet = self._digester.meet
        for one in values:
            met: list[tuple[Any, str]] = []

            def note(value: Any, label: str, met: list[tuple[Any, str]] = met) -> bool:
                met.append((value, label))
                return not is_container(type(value))

            self._digester.meet = note
            try:
                digest = self._apart(one, label, depth + 1)
                # Two that are alike but for what they hold are told apart by that.
                self._digester.meet = lambda value, label: True
                walk = _Walk(self._digester)
                walk.add(_held(one), label, depth + 1)
                found.append((digest, walk.hasher.digest(), met))
            finally:
                self._digester.meet = meet
        for digest, _, met in sorted(found, key=lambda one: one[:2]):
            self._put(digest)
            for value, where in met:
                meet(value, where)

    def _all_at_once(self, value: Any, label: str) -> bool:
        """Digest long lists and dicts of plain values, or of small arrays, in native code."""
        if len(value) <= LONG:
            return False
        try:
            self._put("plain", dumped(self._states(value, label)))
            return True
        except (NotPlainError, RecursionError):
            pass
        return isinstance(value, list | tuple) and self._stacked(value, label)

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
        self._put("objects", self._named(kind))
        self._digester.meet(values[0], label)
        return [*map(vars, values)]

    def _stacked(self, values: list[Any] | tuple[Any, ...], label: str) -> bool:
        """Arrays, or tensors, of one shape and type: copied together, some at a time."""
        kinds = set(map(type, values))
        kind = kinds.pop()
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        stack: Any = None
        if kind is getattr(numpy, "ndarray", None):
            stack = numpy.stack  # type: ignore[union-attr]
            is_one = len({(one.shape, one.dtype) for one in values}) == 1
            is_plain = not values[0].dtype.hasobject
        elif kind is getattr(torch, "Tensor", None):
            stack = torch.stack  # type: ignore[union-attr]
            shapes = {(one.shape, one.dtype, one.device, one.layout) for one in values}
            is_one, is_plain = len(shapes) == 1, values[0].device.type == "cpu"
            is_plain = is_plain and values[0].layout is torch.strided  # type: ignore[union-attr]
        if stack is None or kinds or not is_one or not is_plain:
            return False
        if values[0].nbytes > _SMALL_BYTES:
            return False
        self._put("stacked", _name(kind))
        for first in range(0, len(values), _TOGETHER):
            part = values[first : first + _TOGETHER]
            self.add(
                stack(
                    [
                        getattr(one, "data", one) if torch and kind is torch.Tensor else one
                        for one in part
                    ]
                ),
                label,
                1,
            )
        return True

    def _mapping(self, name: str, items: dict[Any, Any], label: str, depth: int) -> None:
        """Compare as dicts do: the order doesn't count."""
        pairs = []
        for key, one in items.items():
            inside = (
                f"{label}.{key}"
                if name != "dict" and isinstance(key, str)
                else f"{label}[{_short(key)}]"
            )
            pairs.append((self._apart(key, label, depth + 1), one, inside))
        self._put(name, str(len(pairs)))
        for key_digest, one, inside in sorted(pairs, key=lambda pair: pair[0]):
            self._put(key_digest)
            self.add(one, inside, depth + 1)

    def _code(self, value: Any, label: str) -> bool:
        """Functions, classes and modules: by name, and the user's by their source, elsewhere."""
        if isinstance(value, types.ModuleType):
            self._put("module", value.__name__)
        elif isinstance(value, type):
            self._put("class", self._named(value))
        elif isinstance(value, types.FunctionType):
            self._put("function", _function_token(value))
        elif isinstance(value, types.BuiltinFunctionType):
            self._put("builtin", str(value.__qualname__))
            owner = value.__self__
            if owner is None or isinstance(owner, types.ModuleType | type):
                return True
            self.add(owner, label, 1)
        elif isinstance(value, types.MethodType):
            self._put("method", _function_token(value.__func__))
            self.add(value.__self__, f"{label}.__self__", 1)
            self._digester.meet(value, label)
            return True
        else:
            return False
        self._digester.meet(value, label)
        return True

    def _data(self, value: Any, label: str, depth: int) -> bool:
        """What has a content of its own kind."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            self._put("enum", self._named(kind), value.name)
        elif isinstance(value, pathlib.PurePath):
            self._put("path", str(value))
        elif isinstance(value, re.Pattern):
            self._put("pattern", repr(value.pattern), str(value.flags))
        elif isinstance(value, _BY_REPR):
            self._put(_name(kind), repr(value))
        elif kind in (bytearray, memoryview) or isinstance(value, pickle.PickleBuffer):
            raw = value.raw() if isinstance(value, pickle.PickleBuffer) else memoryview(value)
            self._put("bytes")
            self._bytes(raw.cast("B") if raw.contiguous else memoryview(bytes(raw)), label)
        elif isinstance(value, _SILENT):
            self._put("silent", _name(kind))
        elif isinstance(value, io.IOBase):
            self._put("file")
            if value not in (sys.stdin, sys.stdout, sys.stderr):
                self._digester.say_opaque(label, "an open file")
        elif isinstance(value, functools.partial):
            self._put("partial")
            for part, one in (
                ("func", value.func),
                ("args", value.args),
                ("keywords", value.keywords),
            ):
                self.add(one, f"{label}.{part}", depth + 1)
        else:
            return self._numpy(value, label, depth) or self._torch(value, label, depth)
        return True

    def _maybe_seeded(self, value: Any, state: Callable[[], Any], label: str) -> None:
        """A generator that doesn't show whether somebody has seeded it.

        If two jobs have the same state, somebody has; if not, nothing is known.
        """
        what = _name(type(value))
        self._put("generator", what)
        try:
            found = state()
        except NotImplementedError:  # SystemRandom
            self._digester.say_opaque(label, "a generator without a seed")
            return
        digest = combined(map(repr, found))
        while self._digester.unsure.setdefault(label, (f"a {what}", digest))[1] != digest:
            label += "'"

    def _numpy(self, value: Any, label: str, depth: int) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        mapped = getattr(value, "_mmap", None) if isinstance(value, numpy.memmap) else None
        if mapped is not None and value.filename is not None:
            # Its file may be larger than memory, and is read by whoever loads.
            begins = numpy.frombuffer(mapped, numpy.uint8).__array_interface__["data"][0]
            # Of a slice, filename and offset are those of what it was cut from.
            place = value.__array_interface__["data"][0] - begins
            self._put("memmap", str(value.filename), str(value.offset), str(place))
            self._put(str(value.dtype), str(value.shape), str(value.strides))
            found = os.stat(value.filename)
            self._put(str(found.st_size), str(found.st_mtime_ns))
        elif isinstance(value, numpy.ndarray):
            self._put(self._named(type(value)), str(value.dtype), str(value.shape))
            if value.dtype.hasobject:
                self.add(value.tolist(), label, depth + 1)
            else:
                flat = numpy.ascontiguousarray(value).reshape(-1)
                self._bytes(
                    memoryview(flat.view(numpy.uint8)) if flat.size else memoryview(b""), label
                )
        elif isinstance(value, numpy.generic | numpy.dtype):
            self._put(self._named(type(value)), repr(value))
        elif isinstance(value, numpy.random.Generator | numpy.random.BitGenerator):
            bits = getattr(value, "bit_generator", value)
            self._put("generator", _name(type(bits)))
            entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
            if isinstance(entropy, int) and entropy.bit_length() > _TYPED_BITS:
                self._digester.say_opaque(label, "a generator without a seed")
            else:
                self.add(bits.state, label, depth + 1)
        elif isinstance(value, numpy.random.RandomState):
            state = value.get_state(legacy=False)
            words = state.get("state", {}).get("key", ())
            # The first word is the seed that was typed, until something is drawn.
            if len(words) and words[0] != _OF_MANY_WORDS and state["state"]["pos"] == len(words):
                self._put("generator", str(words[0]))
            else:
                self._maybe_seeded(value, lambda: [value.get_state(legacy=False), *words], label)
        else:
            return False
        return True

    def _torch(self, value: Any, label: str, depth: int) -> bool:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor"):
            return False
        if isinstance(value, torch.Tensor):
            self._put(
                _name(type(value)), str(value.dtype), str(tuple(value.shape)), str(value.layout)
            )
            if value.device.type == "meta":
                return True
            plain = value.detach().as_subclass(torch.Tensor)
            if plain.layout is not torch.strided:
                plain = plain.to_dense()
            flat = plain.cpu().contiguous().reshape(-1)
            if flat.numel():
                self._bytes(memoryview(flat.view(torch.uint8).numpy()), label)
        elif isinstance(value, torch.Generator):
            self._put("generator", str(value.device))
            self._bytes(memoryview(value.get_state().numpy()), label)
        elif isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            self._put("torch", repr(value))
        else:
            return False
        return True

    def _bytes(self, data: memoryview, label: str) -> None:
        size = data.nbytes
        self._put(str(size))
        if size <= _MOST_BYTES:
            # Many processors have instructions for this one.
            self._put(hashlib.sha256(data).digest())
            return
        self._digester.say_opaque(
            label, f"{size / 1e9:.0f} GB, of which all but {_MOST_BYTES >> 30} GB"
        )
        parts = _MOST_BYTES // _PART_BYTES
        for part in range(parts):
            first = part * (size - _PART_BYTES) // (parts - 1)
            self.hasher.update(data[first : first + _PART_BYTES])

    def _object(self, value: Any, label: str, depth: int) -> None:
        """An instance of any class, by its class and its state."""
        kind = type(value)
        self._put("object", self._named(kind))
        if depth and is_user_class(kind):
            if self._digester.meet(value, label):
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
            self._put(reduced)
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
            self._digester.say_opaque(label, f"a {_name(kind)}")
        self._state(kind, fields, label, depth)

    def _state(self, kind: type, state: Any, label: str, depth: int) -> None:
        if type(state) is dict:
            if is_data_loader(kind):
                state = {key: one for key, one in state.items() if key not in OF_A_RUN}
            self._mapping("state", state, label, depth)
        else:
            self.add(state, label, depth + 1)


def is_data_loader(cls: type) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and issubclass(cls, data.DataLoader)


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
        return _name(type(function))
    if not is_user_function(function):
        return f"{function.__module__}.{function.__qualname__}"
    node = sources.find(function.__code__, is_sent=function.__module__ == "__main__")
    return sources.digest_of_code(function.__code__) if node is None else sources.digest_of(node)


def _inherits(kind: type, name: str) -> bool:
    """Whether a class does as every object does."""
    return getattr(kind, name, None) is getattr(object, name)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix(
        "__main__."
    )


def _is_of_the_process(value: Any) -> bool:
    """Whether this is what ``random.random`` and its like draw from.

    The server has its own: what a job has drawn from, or seeded, in its process changes nothing.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    generators = (
        getattr(random, "_inst", None),
        getattr(getattr(getattr(numpy, "random", None), "mtrand", None), "_rand", None),
        getattr(torch, "default_generator", None),
    )
    return any(value is one for one in generators)


def _short(value: Any) -> str:
    return shown(value, 40)


def shown(value: Any, most: int = 80) -> str:
    """A value in a few words, for a message."""
    try:
        if isinstance(value, type | types.FunctionType):
            return str(value.__qualname__)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return f"{_name(type(value))} of {value.dtype}, shape {tuple(value.shape)}"
        if isinstance(value, list | tuple | dict | set) and len(value) > _MOST_SHOWN:
            text = f"a {_name(type(value))} of {len(value)}"
        elif isinstance(value, _SHOWN) or value is None:
            text = repr(str(value) if isinstance(value, pathlib.PurePath) else value)
        elif isinstance(value, enum.Enum | _BY_REPR):
            text = repr(value)
        else:
            text = f"a {_name(type(value))}"
    except Exception:  # a __repr__ that raises
        text = f"a {_name(type(value))}"
    text = text.replace("\n", "\\n")
    return text if len(text) <= most else text[: most - 1] + "…"
