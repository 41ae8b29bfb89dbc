"""What every test of faults gets: a place to note how long things took."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Note = Callable[[str, float], None]

_notes = pytest.StashKey[list[tuple[str, float]]]()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Note how long it took to recover or to report: `note("what", secs)`."""
    notes = request.config.stash.setdefault(_notes, [])

    def add(what: str, secs: float) -> None:
        notes.append((what, secs))

    return add


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    notes = config.stash.get(_notes, [])
    if notes:
        terminalreporter.section("time to recover or to report")
    for what, secs in notes:
        terminalreporter.write_line(f"{secs * 1000:8.0f} ms  {what}")
