"""A job that is killed again and again, and started with other ranks, batch sizes and workers.

``RESTARTS=100 SEED=7`` starts it more often, and otherwise.
"""

from __future__ import annotations

import os

from conftest import Start
from dataloader import restarts


def test_restarts_read_what_one_run_reads(start: Start) -> None:
    """``crates/feedline-data/tests/restarts.rs`` restarts 10,000 times, in pure code."""
    changes = int(os.environ.get("RESTARTS", "20"))
    job = start(restarts.restart_often, changes=changes, seed=int(os.environ.get("SEED", "1")))
    read = job.expect("read")
    assert read["chain"] == read["undisturbed"]
    assert read["rows"] > 10 * changes
    assert read["workers_killed"] > changes // 4
