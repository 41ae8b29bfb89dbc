"""Many processes call share() at once, some are killed: `make race ROUNDS=100 JOBS=50 SEED=1`.

Each round forks the jobs, lets them loose together, and kills some of them and the servers that are
being started or run. Every job that lives must read an epoch exactly; each server that made the
loader must have been needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import feedline

SAMPLES = 96
TIMEOUT_SECS = 120.0


class Failed(Exception):
    """What went wrong in a round."""


@dataclass
class Race:
    """One round: so many jobs, of whom some are killed, and so many servers."""

    name: str
    jobs: int
    chance: random.Random
    scratch: Path
    made: Path = field(init=False)
    pids: list[int] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    killed_servers: int = 0

    def run(self) -> str:
        self.made = self.scratch / f"{self.name}.made"
        self.made.touch()
        start, go = os.pipe()
        for number in range(self.jobs):
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.read(start, 1)  # the end of the pipe, when all are there
                self._job(number)
            self.pids.append(pid)
        os.close(start)
        os.close(go)
        self._kill_some()
        self._wait()
        return self._judge()

    def _job(self, number: int) -> None:
        """Share, read an epoch, write down how it was; never returns."""
        made, name = self.made, self.name

        def make_loader() -> Any:
            with open(made, "a") as file:
                file.write(f"{os.getpid()}\n")
            return [np.arange(first, first + 12) for first in range(0, SAMPLES, 12)]

        outcome: dict[str, Any] = {}
        try:
            options: dict[str, Any] = {
                "linger_secs": 30.0,
                "reconnect_secs": 60.0,
                "timeout_secs": 60.0,
            }
            # An epoch from its start, whenever one comes.
            feed = feedline.share(
                make_loader, name, batch_size=number % 9 + 1, replay=True, **options
            )
            outcome["server"] = feed.stats()["server_pid"]
            outcome["samples"] = [int(i) for batch in feed for i in batch]
        except BaseException as error:
            outcome["error"] = repr(error)
        (self.scratch / f"{name}.{number}").write_text(json.dumps(outcome))
        os._exit(0)

    def _kill_some(self) -> None:
        """Kill jobs and servers at random moments of the first half second or so."""
        wanted = self.chance.choice([0, 0, 1, 2, 5])
        for _ in range(wanted):
            time.sleep(self.chance.expovariate(1 / 0.08))  # pause: kills at random times
            what = self.chance.choice(["job", "starter", "server"])
            if what == "server":
                self._kill_server()
            else:
                self._kill_job(only_starters=what == "starter")

    def _kill_server(self) -> None:
        servers = list(server_pids(self.name))
        if servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(servers), signal.SIGKILL)
                self.killed_servers += 1

    def _kill_job(self, *, only_starters: bool) -> None:
        alive = [pid for pid in self.pids if pid not in self.killed]
        if only_starters:
            alive = [pid for pid in alive if has_children(pid)]
        if alive:
            victim = self.chance.choice(alive)
            self.killed.add(victim)
            os.kill(victim, signal.SIGKILL)

    def _wait(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECS
        left = set(self.pids)
        while left:
            done, _ = os.waitpid(-1, os.WNOHANG)
            left.discard(done)
            if done == 0:
                if time.monotonic() > deadline:
                    for pid in left:
                        os.kill(pid, signal.SIGKILL)
                    raise Failed(f"{self.name}: {len(left)} jobs hang")
                time.sleep(0.005)  # pause: polls

    def _judge(self) -> str:
        outcomes = []
        for number, pid in enumerate(self.pids):
            path = self.scratch / f"{self.name}.{number}"
            if pid in self.killed:
                continue
            outcome = json.loads(path.read_text())
            if outcome.get("samples") != list(range(SAMPLES)):
                raise Failed(f"{self.name}: job {number} ended with {outcome}")
            outcomes.append(outcome)
        makers = self.made.read_text().split()
        if len(makers) > 1 + self.killed_servers or len(set(makers)) != len(makers):
            raise Failed(f"{self.name}: {len(makers)} servers, {self.killed_servers} killed")
        running = [feed.pid for feed in feedline.feeds() if feed.name == self.name]
        if len(running) > 1 or set(running) - {int(pid) for pid in makers}:
            raise Failed(f"{self.name}: {running} serve, {makers} made a loader")
        if not self.killed_servers and len({outcome["server"] for outcome in outcomes}) > 1:
            raise Failed(f"{self.name}: more than one server: {outcomes}")
        for pid in server_pids(self.name):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + TIMEOUT_SECS
        while list(server_pids(self.name)):
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: its server stays")
            time.sleep(0.01)  # pause: polls
        return (
            f"{self.name}: {len(outcomes)} jobs read all, {len(self.killed)} killed; "
            f"{len(makers)} servers, {self.killed_servers} killed"
        )


def server_pids(name: str) -> Iterator[int]:
    """Find the processes that serve a shared feed, or will."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"feedline._share_server" in words and name.encode() in words:
                    yield int(entry.name)


def has_children(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().strip())
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="race", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = Path(os.environ["FEEDLINE_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.rounds):
        chance = random.Random(options.seed + number)
        try:
            race = Race(f"race{os.getpid()}-{number}", options.jobs, chance, folder)
            print(race.run(), flush=True)
        except Failed as failure:
            print(f"FAILED {failure}", file=sys.stderr)
            return 1
        for path in folder.glob(f"race{os.getpid()}-{number}*"):
            path.unlink()
    print("always one server; every job that lived read everything exactly once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
