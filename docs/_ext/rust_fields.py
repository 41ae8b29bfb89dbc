"""Tables of a Rust structure's fields, from its own comments: they can't fall behind the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_FIELD = re.compile(r"((?:    ///.*\n)+)(?:    #.*\n)*    pub (\w+): .+,\n")


def fields_of(source: str, structure: str) -> list[tuple[str, str]]:
    """The name and the comment of each public field."""
    found = re.search(rf"^pub struct {structure} {{\n(.*?)^}}", source, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"there is no structure {structure}")
    return [(name, _comment(words)) for words, name in _FIELD.findall(found[1])]


def _comment(words: str) -> str:
    return " ".join(line.strip().removeprefix("///").strip() for line in words.splitlines())


class RustFields(SphinxDirective):
    """`{rust-fields} PATH STRUCTURE`: one row for each field; the path is from the root."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Read the source anew with each build."""
        path, structure = self.arguments
        try:
            fields = fields_of((Path(self.env.srcdir) / path).read_text(), structure)
        except (OSError, ValueError) as error:
            raise self.error(f"{path}: {error}") from error
        self.env.note_dependency(path)
        rows = [f"| `{name}` | {comment} |" for name, comment in fields]
        return self.parse_text_to_nodes("\n".join(["| | |", "|---|---|", *rows]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("rust-fields", RustFields)
    return {"parallel_read_safe": True}
