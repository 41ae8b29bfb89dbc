"""The documentation's pages, taken apart: code, commands and messages that tests check."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = sorted((ROOT / "docs/guide").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """What stands between two fences. A script's name is in its first line: `# train.py`."""

    page: str
    number: int
    language: str
    text: str
    output: str | None

    @property
    def script(self) -> str | None:
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks(page: Path) -> list[Block]:
    """A page's blocks; one of text right after one of code is what that prints."""
    text = page.read_text()
    found = list(_FENCE.finditer(text))
    made = []
    for number, fence in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else None
        is_next = after is not None and not text[fence.end() : after.start()].strip()
        output = after[2] if after is not None and is_next and after[1] == "text" else None
        made.append(Block(page.stem, number, fence[1], fence[2], output))
    return made


def code() -> list[Block]:
    """All Python code of the guide."""
    return [block for page in GUIDE for block in blocks(page) if block.language == "python"]


def commands() -> list[tuple[str, ...]]:
    """All command lines of the program that any page shows, each once."""
    return sorted({command for page in PAGES for command in _commands(page)})


def _commands(page: Path) -> Iterator[tuple[str, ...]]:
    shown = [block.text for block in blocks(page) if block.language in ("console", "bash")]
    lines = "\n".join(shown).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`(feedline [a-z][^`]*)`", page.read_text())
    for line in lines:
        for found in re.findall(r"(?<![\w./-])feedline ([a-z-][^|>&#;]*)", line):
            yield tuple(shlex.split(found))


def messages() -> list[str]:
    """The messages by which troubleshooting is sorted."""
    page = (ROOT / "docs/guide/troubleshooting.md").read_text()
    return re.findall(r"^### `(.*)`", page, re.MULTILINE)
