"""What ``feedline/_server_options.py`` should be: ``make options`` writes it, a test compares."""

from __future__ import annotations

import textwrap
from pathlib import Path

from feedline import _server_options
from feedline._core import server_options

PLACE = Path(_server_options.__file__)

_TEXT = '''\
"""The keywords of ``Server`` and ``serve``. Written by ``make options``: never edited by hand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypedDict


class ServerOptions(TypedDict, total=False):
    """What may be given, as ``crates/feedline-core/src/options/mod.rs`` declares it."""

{options}
'''


def source() -> str:
    """From the core's table."""
    return _TEXT.format(options="\n".join(_lines(*row) for row in server_options()))


def _lines(keyword: str, annotation: str, default: object, about: str) -> str:
    text = textwrap.fill(f'"""{about}.', 100, initial_indent="    ", subsequent_indent="    ")
    return f'    {keyword}: {annotation}\n{text}\n\n    Not given: {default!r}.\n    """'


if __name__ == "__main__":
    PLACE.write_text(source())
