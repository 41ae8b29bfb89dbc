"""A plugin for pytest (`-p soak.record`): the order of a round, and what fails in it."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from support.stopping import SOAK

SEED = "FEEDLINE_SOAK_SEED"
FAILURES = "failures.jsonl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # From the seed alone: all workers must come to the same order.
    random.Random(os.environ[SEED]).shuffle(items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Workers hand their reports on to the process that writes them.
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(os.environ[SOAK]) / FAILURES).open("a") as file:
            file.write(json.dumps({"what": report.nodeid, "when": report.when}) + "\n")
