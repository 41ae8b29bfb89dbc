"""`python -m benchmarks`: everything side by side in one run. `make bench` calls it."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from . import (
    face,
    fanout,
    history,
    jpeg,
    loader,
    memory,
    peers,
    report,
    settings,
    tiny,
    trial,
    watched,
)
from .contestants import Contestant
from .settings import Settings
from .targets import Results

_QUIET_CPUS = 0.3


def _parse() -> tuple[Settings, Path | None]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half the time, noisier numbers")
    parser.add_argument("--only", metavar="NAMES", help="of " + ",".join(settings.WORKLOADS))
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one measurement")
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds; the median is shown")
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of benchmarks/runs/...")
    parser.add_argument("--no-peers", action="store_true", help="leave out tensorsocket")
    typed = parser.parse_args()
    try:
        chosen = settings.resolve(
            quick=typed.quick,
            only=typed.only,
            secs=typed.seconds,
            repeats=typed.repeats,
            peers=not typed.no_peers,
        )
    except ValueError as error:
        parser.error(str(error))
    return chosen, typed.out


def _peers(chosen: Settings, results: Results) -> list[Contestant]:
    """Those that can be had here; a note in the report for one that can't."""
    if not chosen.peers or "fanout" not in chosen.only:
        return []
    from .contestants.tensorsocket import TensorSocket

    trial.progress("tensorsocket: looking for its environment")
    try:
        return [TensorSocket(peers.python_of("tensorsocket"))]
    except peers.PeerMissing as missing:
        results.notes.append(str(missing))
        return []


def _run(chosen: Settings, folder: Path) -> Results:
    # Here, not above: --help needs no torch. All processes are forked from this one, which so loads
    # torch once for all of them, and starts no thread.
    from .contestants.feedline_feed import Feedline
    from .contestants.memcpy import Memcpy
    from .contestants.torch_queue import TorchQueue

    results = Results()
    own: list[Contestant] = [Memcpy(), Feedline(), TorchQueue()]
    others = _peers(chosen, results)
    if "fanout" in chosen.only:
        results.fanout = fanout.run(chosen, folder, own, others)
    if "tiny" in chosen.only:
        results.tiny = tiny.run(chosen, folder, own[1:])
    if "memory" in chosen.only:
        results.memory = memory.run(chosen, folder)
    if "history" in chosen.only:
        results.history = history.run(chosen, folder)
    if "face" in chosen.only:
        results.face = face.run(chosen)
    if "watched" in chosen.only:
        results.watched = watched.run(chosen, folder)
    if "loader" in chosen.only:
        results.loader = loader.run(chosen, folder)
    if "jpeg" in chosen.only:
        results.jpeg = jpeg.run(chosen, folder)
    trial.progress("")
    loads = [t.other_load for t in results.measured() if t.error is None]
    loads += [one.other_load for one in results.loader if one.other_load is not None]
    if loads:
        results.notes.append(_quietness(statistics.median(loads)))
    return results


def _quietness(load: float) -> str:
    """On a busy machine the limit waits for a CPU as often as anyone, and every ratio is luck."""
    note = f"busy with something else meanwhile: {load:.2f} CPUs (median)"
    return note if load < _QUIET_CPUS else f"{note}: too much, repeat this run on a quiet machine"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    chosen, out = _parse()
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="feedline-bench-"))
    # multiprocessing keeps its sockets in the folder of temporary files: they go away with ours.
    tempfile.tempdir = str(folder)
    os.environ["TMPDIR"] = str(folder)
    try:
        results = _run(chosen, folder)
    except ModuleNotFoundError as missing:
        print(f"{missing}\n  set the project up with: make setup", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: nothing kept", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(report.render(results))
    written = report.write(results, chosen, out)
    shown = written.relative_to(Path.cwd()) if written.is_relative_to(Path.cwd()) else written
    print(f"\nall numbers: {shown}")
    peers = ("memcpy", "torch.multiprocessing", "tensorsocket")
    failed = any(one.error for one in results.measured() if one.contestant not in peers)
    return 1 if failed or any(one.error for one in results.loader) else 0


if __name__ == "__main__":
    sys.exit(main())
