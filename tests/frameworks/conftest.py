"""What every framework test gets: no network, one thread, and a long time limit for imports."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from frameworks.sources import shuffled
from support import roles
from support.example_runs import Run, output_of
from support.processes import Child, processes_with
from support.waiting import eventually

HERE = Path(__file__).parent
# Several processes import a framework at once, on two cores.
WATCHDOG_SECS = 240.0
TIMEOUT_SECS = 120.0

Serve = Callable[..., Any]
RunTwice = Callable[..., list[str]]

if find_spec("lightning") is None:
    raise pytest.UsageError(
        "the frameworks are not installed here\n  `make test-frameworks` installs them"
    )

# Before any framework is imported, and for every process that is started from here.
os.environ.update(
    CUDA_VISIBLE_DEVICES="",
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    JAX_PLATFORMS="cpu",
    OMP_NUM_THREADS="1",
    TF_CPP_MIN_LOG_LEVEL="2",
    TOKENIZERS_PARALLELISM="false",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WATCHDOG_SECS, method="thread"))


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have what frameworks write, and where they search for models and data, end with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


@pytest.fixture
def start(start: Start) -> Start:
    """Start a process, as everywhere; one that imports a framework may take its time."""

    def start_child(function: Callable[..., None], **keywords: Any) -> Child:
        child = start(function, **keywords)
        child.timeout_secs = TIMEOUT_SECS
        return child

    return start_child


@pytest.fixture
def sharing(folder: Path) -> Iterator[None]:
    """Have the servers of shared feeds end with the test: they would linger for some seconds."""
    yield
    for feed in feedline.feeds():
        os.kill(feed.pid, signal.SIGTERM)
    eventually(lambda: not processes_with(str(folder)))
    # What was printed, or failed, stays.
    for path in folder.iterdir():
        print(path.name, path.read_text(), sep="\n")
        path.unlink()


@pytest.fixture
def run_twice(run: Run, sharing: None) -> RunTwice:
    """Run an example twice at once, and give what each wrote; the server that they share ends."""

    def run_both(name: str, *args: str) -> list[str]:
        jobs = [run(name, *args) for _ in range(2)]
        return [output_of(job, within_secs=TIMEOUT_SECS) for job in jobs]

    return run_both


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve `sources.shuffled(samples)` from this process: `serve(50, history=1.0)`.

    A server of its own costs an import of torch: `serve_apart`.
    """
    with ExitStack() as servers:

        def serve_shuffled(
            samples: int, *, batch: int = 6, name: str = "train", **options: Any
        ) -> feedline.Server:
            server = feedline.Server(shuffled(samples, batch), name, **options)
            return servers.enter_context(server)

        yield serve_shuffled


@pytest.fixture
def serve_apart(start: Start) -> Serve:
    """Serve `sources.shuffled(samples)` from a process of its own."""

    def serve_shuffled(
        samples: int, *, batch: int = 6, name: str = "train", **options: Any
    ) -> Child:
        loader = "frameworks.sources:shuffled"
        server = start(
            roles.serve, name=name, loader=loader, loader_args=[samples, batch], **options
        )
        server.expect("ready")
        return server

    return serve_shuffled
