"""Ways in which people write a script that shares its loader, as small programs.

Each is run with a command line and ends with a ``make_loader``; nothing is loaded.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import textwrap
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from feedline._identity import Identity, how_differ, identity_of

_count = itertools.count()

BEGIN = """
import argparse, collections, dataclasses, enum, functools, os, pathlib, random, sys, types
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=100)
parser.add_argument("--data", default="/data")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="runs/a")
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(args.seed)
random.seed(args.seed)
np.random.seed(args.seed)

class D(Dataset):
    def __init__(self, data, size):
        self.data, self.size = data, size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        return torch.full((3,), index + len(str(self.data)))
"""


def collected(*themes: dict[str, str]) -> dict[str, str]:
    """The scripts of all themes, by name."""
    found = {how: text for theme in themes for how, text in theme.items()}
    assert len(found) == sum(map(len, themes)), "two scripts of one name"
    return found


@contextmanager
def arguments(*argv: str) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["train.py", *argv]
    try:
        yield
    finally:
        sys.argv = before


def run(text: str, *argv: str, begin: str = BEGIN) -> dict[str, Any]:
    """Run a script as a notebook's cell is run: from text, in a module of its own."""
    text = begin + textwrap.dedent(text)
    path = f"<cell {next(_count)}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    module = types.ModuleType("__main__")
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        with arguments(*argv):
            exec(compile(text, path, "exec"), vars(module))
    finally:
        sys.modules["__main__"] = before
    return vars(module)


def identity(text: str, *argv: str, begin: str = BEGIN) -> Identity:
    """What the ``make_loader`` of a script is known by."""
    scope = run(text, *argv, begin=begin)
    with arguments(*argv):
        return identity_of(scope["make_loader"])


def labels(found: Identity) -> dict[str, str]:
    return {one.label: one.shown for one in found.entries}


def differing(one: Identity, other: Identity) -> set[str]:
    """Labels of what two identities differ in."""
    first = {entry.label: entry for entry in one.entries}
    second = {entry.label: entry for entry in other.entries}
    return {label for label in {*first, *second} if how_differ(first.get(label), second.get(label))}


def maybe_differing(one: Identity, other: Identity) -> set[str]:
    """Labels of what may differ, and can't be told."""
    first = {entry.label: entry for entry in one.entries}
    second = {entry.label: entry for entry in other.entries}
    return {
        label
        for label in {*first, *second}
        if how_differ(first.get(label), second.get(label)) is False
    }


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    sys.modules.pop(name, None)
