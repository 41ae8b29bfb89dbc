"""Digests of random generators: those that somebody has seeded, as far as they show it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from feedline._identity.plain import combined
from feedline._identity.shown import type_name

if TYPE_CHECKING:
    from feedline._identity.digest_walk import Walk

# A generator that nobody seeded has drawn its seed from the system: more bits than people type.
_TYPED_BITS = 64
# What the first word of a Mersenne Twister is that was seeded with many words.
_OF_MANY_WORDS = 0x80000000


def is_of_the_process(value: Any) -> bool:
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


def add_unsure_generator(walk: Walk, value: Any, state: Callable[[], Any], label: str) -> None:
    """A generator that doesn't show whether somebody has seeded it.

    If two jobs have the same state, somebody has; if not, nothing is known.
    """
    what = type_name(type(value))
    walk.put("generator", what)
    try:
        found = state()
    except NotImplementedError:  # SystemRandom
        walk.digester.say_opaque(label, "a generator without a seed")
        return
    digest = combined(map(repr, found))
    while walk.digester.unsure.setdefault(label, (f"a {what}", digest))[1] != digest:
        label += "'"


def add_numpy_generator(walk: Walk, value: Any, numpy_random: Any, label: str, depth: int) -> bool:
    """A generator of NumPy's; says whether it is one."""
    if isinstance(value, numpy_random.Generator | numpy_random.BitGenerator):
        bits = getattr(value, "bit_generator", value)
        walk.put("generator", type_name(type(bits)))
        entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
        if isinstance(entropy, int) and entropy.bit_length() > _TYPED_BITS:
            walk.digester.say_opaque(label, "a generator without a seed")
        else:
            walk.add(bits.state, label, depth + 1)
    elif isinstance(value, numpy_random.RandomState):
        state = value.get_state(legacy=False)
        words = state.get("state", {}).get("key", ())
        # The first word is the seed that was typed, until something is drawn.
        if len(words) and words[0] != _OF_MANY_WORDS and state["state"]["pos"] == len(words):
            walk.put("generator", str(words[0]))
        else:
            add_unsure_generator(
                walk, value, lambda: [value.get_state(legacy=False), *words], label
            )
    else:
        return False
    return True
