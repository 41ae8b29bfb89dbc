"""What two loaders may differ in: single entries, each with its label and its digest."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from feedline._identity.certainty import speaks_of_training
from feedline._identity.parts import Part, different_parts
from feedline._identity.plain import combined

_MOST_DIFFERENCES = 6
# More entries of one kind than this (`samples[7].label`) are compared as one.
_MOST_OF_A_KIND = 100
_MOST_ENTRIES = 3000
# Parts of labels by which entries are of one kind: places, then keys, then all that follows a name.
_FOLDS = ((r"\[\d+\]| \(\d+\)", _MOST_OF_A_KIND), (r"\[[^]]*\]", 2), (r"[.\[(].*", 1))


class Entry(NamedTuple):
    """One thing that two loaders may differ in.

    =========  ======================================================================
    kind       differs if
    =========  ======================================================================
    (none)     the digests do, or only one of the loaders has it
    "path"     its digest, the path in full, does, and leads to something
    "lazy"     its digest does; what wasn't filled yet, and has none, is like any other
    "unsure"   perhaps, if its digest does: that is said, and isn't an error
    =========  ======================================================================

    Where the loader doesn't surely depend on it (``is_sure``), a difference is said, too.
    """

    label: str
    shown: str
    digest: str
    kind: str = ""
    # Why all of what it belongs to counts, if that is a library's doing.
    why: str = ""
    # The fields of an object that counts as a whole, for messages.
    parts: tuple[Part, ...] = ()
    # Whether the loader surely depends on it.
    is_sure: bool = True


def differences(
    here: Sequence[Entry], there: Sequence[Entry], server_pid: int
) -> tuple[list[str], list[str]]:
    """What two loaders differ in, and what they may differ in, a line each.

    Sources come first, for the rest may follow from them.
    """
    ours = {one.label: one for one in here}
    theirs = {one.label: one for one in there}
    found: dict[bool, list[str]] = {True: [], False: []}
    for label in sorted(
        {*ours, *theirs}, key=lambda label: (not label.startswith("source of"), label)
    ):
        our, their = ours.get(label), theirs.get(label)
        differs = how_differ(our, their)
        if differs is not None:
            name = label.removesuffix("=")
            nothing = "none of that name" if label.startswith("source of") else "not used"
            why = f" ({our.why})" if our is not None and our.why else ""
            pairs = [(name, our.shown if our else nothing, their.shown if their else nothing)]
            if our and their and our.shown == their.shown:
                inside = different_parts(our.parts, their.parts)
                pairs = [(one.label, one.shown, other.shown) for one, other in inside] or pairs
            for where, of_ours, of_theirs in pairs:
                told = "another one" if of_ours == of_theirs else of_ours
                found[differs].append(
                    f"{where}: {of_theirs} in the running feed (pid {server_pid}), {told} here{why}"
                )
    for lines in found.values():
        if len(lines) > _MOST_DIFFERENCES:
            more = len(lines) - _MOST_DIFFERENCES + 1
            lines[_MOST_DIFFERENCES - 1 :] = [f"and {more} more"]
    return found[True], found[False]


def how_differ(our: Entry | None, their: Entry | None) -> bool | None:
    """True if two entries of one label differ and that counts, False if it may, None if not."""
    differs = _differ(our, their)
    is_sure = any(one.is_sure for one in (our, their) if one is not None)
    if our is not None and their is not None and our.why:
        # A library has all options: which of them it reads isn't known.
        inside = different_parts(our.parts, their.parts)
        if inside and all(speaks_of_training(one.label) for one, _ in inside):
            is_sure = False
    return differs and is_sure


def _differ(our: Entry | None, their: Entry | None) -> bool | None:
    one = our or their
    assert one is not None, "an entry of one of the two"
    if our is not None and their is not None and our.digest == their.digest:
        return None
    match one.kind:
        case "path":
            # Another file only if there is one: a word such as "train" leads nowhere.
            if our is None or their is None:
                return None
            return True if any(map(os.path.lexists, (our.digest, their.digest))) else None
        case "lazy":
            is_filled = our is not None and their is not None and our.digest and their.digest
            return True if is_filled else None
        case "unsure":
            return False
    return True


def folded(entries: list[Entry]) -> list[Entry]:
    """The same in fewer entries: those of one kind, as of a list's elements, become one."""
    for pattern, least in _FOLDS:
        kinds: dict[tuple[str, str], list[Entry]] = {}
        for one in entries:
            name = re.sub(pattern, "[…]", one.label)
            kinds.setdefault((name, one.kind), []).append(one)
        entries = []
        for (name, kind), members in kinds.items():
            if len(members) <= least:
                entries += members
                continue
            first = ", ".join(one.shown for one in members[:3])
            # Of paths the first one tells whether all lead elsewhere.
            of_all = combined(part for one in members for part in (one.label, one.digest))
            digest = members[0].digest if kind == "path" else of_all
            entries.append(Entry(name, f"{first}, … ({len(members)})", digest, kind))
        if len(entries) <= _MOST_ENTRIES:
            break
    return sorted(entries)
