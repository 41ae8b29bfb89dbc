"""The command line's reference: what the program itself prints, when the site is built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}


def help_of(*command: str) -> str:
    """What `feedline COMMAND --help` prints."""
    program = [sys.executable, "-m", "feedline", *command, "--help"]
    done = subprocess.run(program, capture_output=True, text=True, env=_ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(program)} failed ({done.returncode}): {done.stderr}")
    return done.stdout.rstrip()


def commands_of(text: str) -> list[str]:
    """The names under `Commands:` in a program's help."""
    listed = re.search(r"^Commands:\n((?:[ \t].*\n?|\n)*)", text, re.MULTILINE)
    names = re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []
    return [name for name in names if name != "help"]


class Program(SphinxDirective):
    """`{feedline-help}`: the program's help, and a section for each of its commands."""

    def run(self) -> list[nodes.Node]:
        """Run the program; a new command is a new section."""
        overview = help_of()
        commands = commands_of(overview)
        if not commands:
            raise self.error("`feedline --help` lists no commands")
        made: list[nodes.Node] = [_literal(overview)]
        for command in commands:
            section = nodes.section(ids=[f"feedline-{command}"], names=[f"feedline-{command}"])
            section += nodes.title("", f"feedline {command}")
            section += _literal(help_of(command))
            made.append(section)
        return made


def _literal(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="text")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("feedline-help", Program)
    return {"parallel_read_safe": True}
