"""Whether every link of a built site leads somewhere: `python check_links.py target/docs`.

Pages, files and anchors of the site are looked up. Addresses elsewhere are checked for their form
only: a build must not need the internet, nor fail with it.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# rustdoc checks its own links (`-D warnings`), and makes some anchors only when a page is open.
_OF_RUSTDOC = "rust"


class Page(HTMLParser):
    """The links and anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and what it is called."""
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")


@cache
def page(path: Path) -> Page:
    return Page(path)


def fault_of(link: str, source: Path) -> str | None:
    """Why a link of a page leads nowhere, or None."""
    try:
        parts = urlsplit(link)
    except ValueError as error:
        return str(error)
    if parts.scheme in ("http", "https"):
        return None if parts.hostname else "it names no host"
    if parts.scheme in ("data", "mailto"):
        return None
    if parts.scheme or parts.netloc:
        return "it is neither a path nor an address"
    target = (source.parent / unquote(parts.path)).resolve() if parts.path else source
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "there is no such file"
    is_page = target.suffix == ".html" and parts.fragment
    if is_page and unquote(parts.fragment) not in page(target).anchors:
        return "the page has no such anchor"
    return None


def main() -> int:
    """Print what is broken, and how much was checked."""
    root = Path(sys.argv[1]).resolve()
    pages = sorted(root.rglob("*.html"))
    pages = [one for one in pages if one.relative_to(root).parts[0] != _OF_RUSTDOC]
    checked = broken = 0
    for path in pages:
        for link in page(path).links:
            checked += 1
            if fault := fault_of(link, path):
                broken += 1
                print(f"{path.relative_to(root)}: {link}: {fault}", file=sys.stderr)
    print(f"{checked} links of {len(pages)} pages checked, {broken} broken")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
