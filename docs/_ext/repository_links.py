"""Links to files of the repository that are no pages: an example, a test, a crate.

Such a file becomes a page that shows it. A crate's `src/lib.rs` stands for what rustdoc makes of
the crate, which is put under `rust/` beside the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

_shown: set[str] = set()


class ShowFiles(SphinxTransform):
    """Turn what would be a download into a link to a page."""

    # Before Sphinx collects what to copy for downloads.
    default_priority = 400

    def apply(self, **options: Any) -> None:
        """Look at each link of a page."""
        for link in list(self.document.findall(addnodes.download_reference)):
            relative, _ = self.env.relfn2path(link["reftarget"], self.env.docname)
            uri = relative_uri(f"{self.env.docname}.html", _page_of(Path(relative).as_posix()))
            link.replace_self(nodes.reference("", "", *link.children, refuri=uri, internal=True))


def _page_of(path: str) -> str:
    parts = PurePosixPath(path).parts
    if parts[0] == "crates" and parts[2:] == ("src", "lib.rs"):
        return f"rust/{parts[1].replace('-', '_')}/index.html"
    _shown.add(path)
    return f"files/{path}.html"


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Show each file that some page links to."""
    highlight = app.builder.highlighter  # type: ignore[attr-defined]
    for path in sorted(_shown):
        try:
            lexer = get_lexer_for_filename(path).aliases[0]
        except ClassNotFound:
            lexer = "text"
        text = (Path(app.srcdir) / path).read_text()
        body = f"<h1>{path}</h1>\n{highlight.highlight_block(text, lexer)}"
        yield f"files/{path}", {"title": path, "body": body}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_transform(ShowFiles)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": False}
