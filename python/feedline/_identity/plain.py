"""Digests of plain values, many at once, in native code."""

from __future__ import annotations

import hashlib
import marshal
import operator
import pathlib
from collections.abc import Iterable
from typing import Any

PLAIN = (bool, int, float, str, bytes)
_PLAIN_KINDS = frozenset((*PLAIN, type(None)))
_PATHS = frozenset((pathlib.PosixPath, pathlib.PurePosixPath))
# Lists of plain values that are longer than this are digested in one go.
LONG = 100
_MOST_LOOKED_THROUGH = 1000


class NotPlainError(Exception):
    pass


def is_plain_data(value: Any) -> bool:
    """Whether a value, and all that it holds, is a text, a number or a container of those.

    Not if it holds very many: that isn't looked through.
    """
    left, seen = [value], 0
    while left:
        one = left.pop()
        kind = type(one)
        seen += 1
        if seen > _MOST_LOOKED_THROUGH:
            return False
        if kind in (list, tuple, set, frozenset):
            left += one
        elif kind is dict:
            left += [*one, *one.values()]
        elif kind not in _PLAIN_KINDS:
            return False
    return True


def _canonical(value: Any) -> Any:
    """The same in the types that marshal writes, equal for what is equal: dicts are sorted.

    What stands for another type begins with ``...``, which isn't plain itself.
    """
    kind = type(value)
    if kind in _PLAIN_KINDS:
        return value
    if kind is list or kind is tuple:
        kinds = set(map(type, value))
        if kinds <= _PLAIN_KINDS:
            return value
        if kinds <= _PATHS:
            return (..., "paths", kind is list, list(map(str, value)))
        if len(value) > LONG and len(kinds) == 1 and (table := _columns(value, *kinds)):
            return (..., kind is list, *table)
        inside = [_canonical(one) for one in value]
        return inside if kind is list else tuple(inside)
    if kind is dict:
        kinds = set(map(type, value))
        if kinds == {str} or kinds == {int}:
            items = sorted(value.items())
        elif not kinds:
            items = []
        else:
            raise NotPlainError
        if set(map(type, value.values())) <= _PLAIN_KINDS:
            return (..., "dict", items)
        return (..., "dict", [(key, _canonical(one)) for key, one in items])
    if kind is set or kind is frozenset:
        kinds = set(map(type, value))
        if kinds == {str} or kinds == {int}:
            return (..., "set", sorted(value))
    if kind in _PATHS:
        return (..., "path", str(value))
    raise NotPlainError


def _columns(rows: Any, kind: type) -> tuple[Any, ...] | None:
    """Dicts of the same keys, or tuples of one length, by their columns: a few long lists."""
    if kind is dict and len(found := set(map(frozenset, rows))) == 1:
        keys = found.pop()
        if set(map(type, keys)) == {str}:
            names = sorted(keys)
            return (
                "dicts",
                names,
                [_canonical(list(map(operator.itemgetter(name), rows))) for name in names],
            )
    if kind is tuple and len(set(map(len, rows))) == 1:
        return (
            "tuples",
            len(rows),
            [_canonical(list(map(operator.itemgetter(at), rows))) for at in range(len(rows[0]))],
        )
    return None


def dumped(value: Any) -> bytes:
    """The bytes of a value, the same for what is equal; raises ``NotPlainError`` for objects."""
    return marshal.dumps(_canonical(value), 2)


def combined(parts: Iterable[str]) -> str:
    """One digest of many texts."""
    hasher = hashlib.blake2b(digest_size=12)
    for one in parts:
        hasher.update(one.encode("utf-8", "backslashreplace") + b"\0")
    return hasher.hexdigest()
