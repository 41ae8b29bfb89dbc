"""What every test of faults gets: a place to note how long things took."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Note = Callable[[str, float], None]


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Note how long it took to recover or to report: `note("what", secs)`."""

    def add(what: str, secs: float) -> None:
        request.node.user_properties.append((what, secs))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    notes = [note for report in reports if report.when == "call" for note in report.user_properties]
    if notes:
        terminalreporter.section("time to recover or to report")
    for what, secs in notes:
        terminalreporter.write_line(f"{secs * 1000:8.0f} ms  {what}")
