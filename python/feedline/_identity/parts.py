"""The fields of captured objects, so that a message can name the one that differs.

Whether two loaders differ is a matter of entries and their digests; parts only say where.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from feedline._identity.plain import PLAIN

# So deep fields are told of: `loader.dataset.transform.transforms[0].size`.
MOST_DEPTH = 5
MOST_PARTS = 200
# Longer ones are counted only.
MOST_SHOWN = 40
# Of longer lists the elements are not told of one by one.
MOST_ELEMENTS = 8


class Part(NamedTuple):
    """A field of an object: where it stands, what it looks like, what it holds."""

    label: str
    shown: str
    digest: str


def is_worth_showing(value: Any) -> bool:
    """Whether a value tells more than its type and length do. Asks no object for its repr."""
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > MOST_SHOWN:
        return False
    if isinstance(value, dict):
        return all(type(one) in PLAIN for pair in value.items() for one in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(type(one) in PLAIN for one in value)
    return True


def different_parts(here: Sequence[Any], there: Sequence[Any]) -> list[tuple[Part, Part]]:
    """Of two objects that look alike, the innermost fields that differ.

    Those that look different too, if there are any. A value that stands in several places (a
    loader's batch size is its batch sampler's, too) is told once.
    """
    ours = {part.label: part for part in (Part(*one) for one in here)}
    theirs = {part.label: part for part in (Part(*one) for one in there)}
    pairs = [(ours[label], theirs[label]) for label in ours if label in theirs]
    differ = [pair for pair in pairs if _look(pair) != _look(pair[::-1])]
    labels = [our.label for our, _ in differ]
    inner, outer = [], set()
    for pair in differ:
        inside = (f"{pair[0].label}.", f"{pair[0].label}[")
        if any(one.startswith(inside) for one in labels):
            outer.add(_look(pair))
        else:
            inner.append(pair)
    # What is an object's in one place is the same object's in another.
    inner = [pair for pair in inner if _look(pair) not in outer]
    visible = [(our, their) for our, their in inner if our.shown != their.shown]
    told: dict[tuple[str, ...], tuple[Part, Part]] = {}
    for pair in sorted(visible or inner, key=lambda pair: (len(pair[0].label), pair)):
        name = re.split(r"[.\[]", pair[0].label)[-1]
        told.setdefault((name, *_look(pair)), pair)
    return list(told.values())


def _look(pair: tuple[Part, ...]) -> tuple[str, ...]:
    return tuple(text for part in pair for text in (part.shown, part.digest))
