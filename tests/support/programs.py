"""Whole training scripts, run as they are, to see what the function reaches that they share.

They stand in ``tests/sharing/programs``, several in a file. ``##### NAME`` begins a script, and
``=== PATH`` another file that lies beside it. Comments at the beginning say how it is run:

=============  =====================================================================
``first:``     variables of the environment and arguments of a first job
``second:``    those of a second one
``other:``     those of one that loads something else, for scripts that share
``$ =``        what ``$`` stands for in the first and in the second job
``said:``      what is said to be incomparable
``warned:``    what is said to differ, where the loader may not depend on it
=============  =====================================================================

``site-packages.txt`` has libraries that they import: small ones, written as the real ones are.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import feedline
from feedline._identity import Identity, identity_of

_FOLDER = Path(__file__).parents[1] / "sharing" / "programs"
_LIBRARIES = {
    name: content
    for part in (_FOLDER / "site-packages.txt").read_text().split("=== ")[1:]
    for name, content in [part.split("\n", 1)]
}
_HEAD = re.compile(r"# (first|second|other|said|warned|\$)(?: =|:)(.*)\n")


@dataclass(frozen=True)
class Program:
    """A script, the files beside it, and how jobs run it."""

    text: str
    how: dict[str, str]

    def identity(self, folder: Path, job: str) -> Identity:
        """What the loader is known by that a job shares."""
        one, _, other = self.how.get("$", "$").partition(" | ")
        text = self.text.replace("$", other if other and job == "second" else one)
        line = self.how.get(job, self.how.get("first", ""))
        script, *files = re.split(r"^=== ", text, flags=re.MULTILINE)
        for path, content in [("train.py", script), *(one.split("\n", 1) for one in files)]:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(content)
        for name, content in _LIBRARIES.items():
            (folder / "site-packages").mkdir(exist_ok=True)
            (folder / "site-packages" / name).write_text(content)
        return _run(folder, line.split())


def programs(kind: str) -> dict[str, Program]:
    """All scripts of the files whose names begin with a kind, by name."""
    found: dict[str, Program] = {}
    for path in sorted(_FOLDER.glob(f"{kind}-*.txt")):
        for part in path.read_text().split("##### ")[1:]:
            name, text = part.split("\n", 1)
            assert name not in found, f"two scripts of one name: {name}"
            how = {}
            while head := _HEAD.match(text):
                how[head[1]] = head[2].strip()
                text = text[head.end() :]
            found[name] = Program(text, how)
    assert found, f"no scripts in {_FOLDER}"
    return found


def _run(folder: Path, words: list[str]) -> Identity:
    found: list[Identity] = []

    def share(make_loader: Any, *args: Any, **options: Any) -> list[Any]:
        found.append(identity_of(make_loader))
        return []  # no batches

    with pytest.MonkeyPatch.context() as patch, _as_before(folder):
        patch.chdir(folder)
        patch.syspath_prepend(folder / "site-packages")
        patch.syspath_prepend(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(feedline, "share", share)
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["train.py", *words])
        importlib.invalidate_caches()
        runpy.run_path("train.py", run_name="__main__")
    return found[0]


@contextmanager
def _as_before(folder: Path) -> Iterator[None]:
    """Undo what a script does to its process."""
    environment, root = dict(os.environ), logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]
        os.environ.clear()
        os.environ.update(environment)
        root.setLevel(level)
        root.handlers[:] = handlers
        # logging.config disables all loggers that are there.
        logging.getLogger("feedline").disabled = False
