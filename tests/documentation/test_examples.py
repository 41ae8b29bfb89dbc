"""Every example runs, as a user would run it, in processes of its own."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from support.example_runs import EXAMPLES, WATCHDOG_SECS, Run, output_of

pytestmark = pytest.mark.timeout(3 * WATCHDOG_SECS, method="thread")


def test_no_example_is_left_out() -> None:
    tested = {"numpy_feed.py", "serve_imagefolder.py", "train.py"}
    tested |= {"from_tensorsocket_consumer.py", "from_tensorsocket_producer.py"}
    examples = {file.name for file in EXAMPLES.glob("*.py")}
    # Those that need a framework are checked below.
    assert examples - needing_frameworks() == tested


def needing_frameworks() -> set[str]:
    """Examples that only `make test-frameworks` can run."""
    found = {file.name for file in (*EXAMPLES.glob("with_*.py"), *EXAMPLES.glob("from_*.py"))}
    return {name for name in found if not name.startswith("from_tensorsocket")}


def test_every_framework_s_example_has_its_test() -> None:
    """`with_NAME.py` is run by `tests/frameworks/test_NAME.py`, `from_NAME.py` by its sources."""
    frameworks = Path(__file__).parents[1] / "frameworks"
    for name in needing_frameworks():
        test = name.replace("with_", "test_") if name.startswith("with_") else "test_sources.py"
        assert name in (frameworks / test).read_text(), name


def test_numpy_feed(run: Run) -> None:
    assert sorted(output_of(run("numpy_feed.py")).splitlines()) == [
        "batch size 300: 1000 samples, each exactly once, in order",
        "batch size 32: 1000 samples, each exactly once, in order",
    ]


def test_two_jobs_on_one_image_folder(run: Run) -> None:
    server = run("serve_imagefolder.py")
    jobs = {"7": run("train.py", "64"), "9": run("train.py", "48")}
    for batches, job in jobs.items():
        output = output_of(job)
        epochs = re.findall(r"epoch (\d): (\d+) samples in (\d+) batches", output)
        assert epochs == [(str(epoch), "400", batches) for epoch in range(3)], output
    assert server.poll() is None, "it serves until its user ends it"
    server.send_signal(signal.SIGINT)
    output, _ = server.communicate(timeout=WATCHDOG_SECS)
    assert server.returncode in (0, 130, -signal.SIGINT), output


def test_scripts_that_were_written_for_tensorsocket(run: Run) -> None:
    jobs = {
        "63": run("from_tensorsocket_consumer.py", "16"),
        "16": run("from_tensorsocket_consumer.py"),
    }
    producer = run("from_tensorsocket_producer.py")
    for batches, job in jobs.items():
        output = output_of(job)
        epochs = re.findall(r"epoch (\d): (\d+) samples in (\d+) batches", output)
        assert epochs == [(str(epoch), "1000", batches) for epoch in range(3)], output
    assert "every consumer has read them" in output_of(producer)
