"""References that the program itself prints when the site is built: its commands, its metrics."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import feedline


def printed(*arguments: str) -> str:
    """What the program prints."""
    program = [sys.executable, "-m", "feedline", *arguments]
    env = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(program, capture_output=True, text=True, env=env)
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
        overview = printed("--help")
        commands = commands_of(overview)
        if not commands:
            raise self.error("`feedline --help` lists no commands")
        made: list[nodes.Node] = [_literal(overview)]
        for command in commands:
            section = nodes.section(ids=[f"feedline-{command}"], names=[f"feedline-{command}"])
            section += nodes.title("", f"feedline {command}")
            section += _literal(printed(command, "--help"))
            made.append(section)
        return made


class Metrics(SphinxDirective):
    """`{feedline-metrics}`: every metric that there can be, with what Prometheus is told of it."""

    def run(self) -> list[nodes.Node]:
        """Ask a feed that runs for the moment: without one there is nothing to tell."""
        with tempfile.TemporaryDirectory(prefix="fl", dir="/tmp") as folder:
            # Read where the server takes its name.
            os.environ["FEEDLINE_DIR"] = folder
            # One that has a pool of workers: a feed without has fewer numbers.
            loader = feedline.DataLoader([np.zeros(1)], num_workers=1)
            with feedline.Server(loader, "any"), feedline.attach("any") as feed:
                next(iter(feed))
                text = printed("metrics")
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        told = re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
        if not told:
            raise self.error("`feedline metrics` names no metrics")
        rows = [f"| `{name}` | {kinds[name]} | {words} |" for name, words in told]
        return self.parse_text_to_nodes("\n".join(["| | | |", "|---|---|---|", *rows]))


def _literal(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="text")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("feedline-help", Program)
    app.add_directive("feedline-metrics", Metrics)
    return {"parallel_read_safe": True}
