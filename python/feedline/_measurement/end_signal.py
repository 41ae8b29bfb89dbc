"""How a measured process learns that it should end: its standard input is closed."""

from __future__ import annotations

import select


def is_told_to_end(within_secs: float = 0.0) -> bool:
    """Whether our standard input was closed; no thread waits for it, since loaders fork."""
    return bool(select.select([0], [], [], within_secs)[0])
