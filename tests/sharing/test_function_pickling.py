"""How functions and classes of a script travel to the server."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from feedline._pickling import pack
from support.identity_scripts import run


def made_elsewhere(text: str, folder: Path) -> str:
    """What a script's ``make_loader`` returns in another process, as text."""
    make_loader: Any = run(text, begin="")["make_loader"]
    (folder / "payload").write_bytes(pack({"": make_loader}, {}))
    script = """
        from feedline._pickling import unpack
        print(unpack(open("payload", "rb").read())[""]())
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return found.stdout.strip() or found.stderr


def test_names_that_modules_of_torch_have_too(tmp_path: Path) -> None:
    """``torch.classes`` isn't a plain module, and ``self.classes`` has the same name."""
    text = """
        import torch
        class Images:
            def __init__(self):
                self.classes, self.ops = ["cat"], torch.arange(3)
        def make_loader():
            return Images().ops.tolist()
    """
    assert made_elsewhere(text, tmp_path) == "[0, 1, 2]"


def test_cached_functions(tmp_path: Path) -> None:
    text = """
        import functools
        @functools.cache
        def steps(count):
            return steps(count - 1) + 1 if count else 0
        @functools.lru_cache(maxsize=3)
        def half(count):
            return count / 2
        class Numbers:
            def read(self):
                return steps(3), half(3), half.cache_parameters()["maxsize"]
        def make_loader():
            return Numbers().read()
    """
    assert made_elsewhere(text, tmp_path) == "(3, 1.5, 3)"
