"""Random schedules: consumers that join, leave, write, keep and are slow, and faults.

What happens when follows from the seed; how it interleaves doesn't. A round ends with everyone
asked to finish, and with a check of what is left.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import consumer_process
from chaos.judge import Policy
from support import roles
from support.processes import Child, Report, processes_with, shared_memory_files
from support.waiting import eventually

# The last of its batches of ten is smaller.
SAMPLES = 605
CONSUMERS = 8
STALL_SECS = 2.0
# Without a batch for so long, and nobody stopped it: it hangs.
HANG_SECS = 15.0


@dataclass(frozen=True)
class Action:
    """A fault that hits one consumer."""

    at: float
    kind: str
    slot: int
    secs: float = 0.0


def plan(rng: random.Random, policy: Policy, secs: float, consumers: int) -> list[Action]:
    """Draw about two actions a second."""
    kinds = ["kill"] * 4 + ["stop"] * 4 + ["stall"]
    if policy == "restart":
        kinds += ["restart"] * 3
    actions = []
    at = 1.0
    while at < secs:
        slot = rng.randrange(consumers)
        kind = rng.choice(kinds)
        length = {"stop": rng.uniform(0.01, 0.4), "stall": STALL_SECS * 1.5}
        actions.append(Action(at, kind, slot, length.get(kind, 0.0)))
        at += rng.expovariate(2.0)
    return actions


def server_options(rng: random.Random, policy: Policy, scratch: Path) -> dict[str, Any]:
    """Draw a server for a policy."""
    options: dict[str, Any] = {
        "ring": rng.choice([60, 120, 400]),
        "wait_for": rng.choice([1, 3]),
        "stall_timeout_secs": STALL_SECS,
        # A page of its own for each sample, or many samples on a page.
        "loader_options": {"width": rng.choice([37, 5000, 5000])},
        "whole_batches": rng.random() < 0.2,
    }
    if options["whole_batches"]:
        options["ring"] //= 10
    if policy == "replay":
        options["replay"] = True
    elif policy == "restart":
        options |= {"loader": "Resumable", "state_file": str(scratch / "state")}
    elif policy != "block":
        options["lag"] = policy
    if policy in ("block", "history", "restart"):
        options["history"] = rng.choice([0.0, 0.02, 0.5, 1.0])
    if rng.random() < 0.3:
        options["history_dir"] = str(scratch)
    return options


class Failed(AssertionError):
    """A round went wrong; the text has all there is to know."""


@dataclass
class Slot:
    """A place for one consumer after the other."""

    child: Child
    heard_at: float
    born: int = 0
    resumes_at: float | None = None
    """Stopped until then."""
    behaviour: Report = field(default_factory=dict)
    last: Report = field(default_factory=dict)


class Round:
    """One schedule, from its seed."""

    def __init__(
        self,
        policy: Policy,
        seed: int,
        secs: float,
        scratch: Path,
        *,
        consumers: int = CONSUMERS,
    ) -> None:
        self.policy = policy
        self.consumers = consumers
        self.seed = seed
        self.secs = secs
        self.counts: Counter[str] = Counter()
        rng = random.Random(f"{policy}/{seed}")
        self.options = server_options(rng, policy, scratch)
        # Where batches travel whole, what was skipped is counted in batches: all have ten.
        self.samples = SAMPLES - SAMPLES % 10 if self.options["whole_batches"] else SAMPLES
        self.actions = plan(rng, policy, secs, consumers)
        self.children: list[Child] = []

    def run(self) -> str:
        """Run it; a line that says what happened, or `Failed`."""
        folder = os.environ["FEEDLINE_DIR"]
        shared_before = shared_memory_files()
        processes_before = set(processes_with(folder))
        try:
            self._play()
        except AssertionError as error:
            raise Failed(f"{error}\n{self._told()}") from error
        finally:
            for child in self.children:
                if child.running:
                    child.kill()
                child.finish()
        left = [*os.listdir(folder), *(shared_memory_files() - shared_before)]
        left += [f"pid {pid}" for pid in set(processes_with(folder)) - processes_before]
        if left:
            raise Failed(f"left behind: {left}\n{self._told()}")
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return f"{self.policy:8} seed {self.seed:<10} {self.secs:4.0f} s: {counted}"

    def _told(self) -> str:
        return (
            f"under {self.options}\nreplay it with: "
            f"make chaos POLICY={self.policy} SEED={self.seed} SECS={self.secs:g} "
            f"CONSUMERS={self.consumers}"
        )

    def _start(self, function: Any, **keywords: Any) -> Child:
        child = Child(function, keywords)
        self.children.append(child)
        return child

    def _play(self) -> None:
        self._serve()
        eventually(lambda: self._stats()["ring_bytes"] > 0)
        descriptors = self._descriptors()
        self.slots = [self._enter(slot, 0) for slot in range(self.consumers)]
        # Under wait_for nobody gets anything before the last one has come.
        while not all(slot.last for slot in self.slots):
            self._watch()
            time.sleep(0.01)  # pause: polls
        began = time.monotonic()
        due = list(self.actions)
        while time.monotonic() < began + self.secs:
            while due and due[0].at <= time.monotonic() - began:
                self._act(due.pop(0))
            self._watch()
            time.sleep(0.01)  # pause: polls
        self._end()
        eventually(lambda: not self._stats()["consumers"])
        eventually(lambda: self._descriptors() <= descriptors)
        self.server.tell("stop")
        self.server.expect("done")
        assert self.server.exit_code() == 0, self.server.stderr
        assert "panicked" not in self.server.stderr, self.server.stderr

    def _serve(self) -> None:
        self.server = self._start(roles.serve, loader_args=[self.samples, 10], **self.options)
        self.server.expect("ready")

    def _enter(self, slot: int, born: int) -> Slot:
        child = self._start(
            consumer_process.wander,
            seed=f"{self.policy}/{self.seed}/{slot}/{born}",
            samples=self.samples,
            policy=self.policy,
            stall_secs=STALL_SECS,
            unit=10 if self.options["whole_batches"] else 1,
        )
        self.counts["consumers"] += 1
        return Slot(child, time.monotonic(), born)

    def _act(self, action: Action) -> None:
        slot = self.slots[action.slot]
        if action.kind == "restart":
            self.counts["restarts"] += 1
            self.server.kill()
            self._serve()
            return
        if slot.resumes_at is not None and action.kind != "kill":
            return
        self.counts[f"{action.kind}s" if action.kind != "kill" else "killed"] += 1
        if action.kind == "kill":
            self._hear(slot)
            slot.child.kill()
            self._retire(slot)
            self.slots[action.slot] = self._enter(action.slot, slot.born + 1)
        else:
            slot.child.stop()
            slot.resumes_at = time.monotonic() + action.secs

    def _watch(self) -> None:
        """Check that every consumer makes progress."""
        now = time.monotonic()
        assert self.server.running, f"the server ended\n{self.server.stderr}"
        for slot in self.slots:
            if slot.resumes_at is not None and slot.resumes_at <= now:
                slot.resumes_at = None
                slot.heard_at = now
                slot.child.resume()
            self._hear(slot)
            if slot.resumes_at is None and now - slot.heard_at > HANG_SECS:
                self._report_hang(slot)

    def _hear(self, slot: Slot) -> None:
        for report in slot.child.said():
            slot.heard_at = time.monotonic()
            if report["event"] == "behaviour":
                slot.behaviour = report
            else:
                slot.last = report
            if report["event"] == "error":
                raise AssertionError(
                    f"{report['traceback']}\nmanner: {slot.behaviour}\nserver: {self._stats()}"
                    f"\nits log:\n{slot.child.stderr}\nthe server's:\n{self.server.stderr}"
                )

    def _retire(self, slot: Slot) -> None:
        for what in consumer_process.COUNTS:
            self.counts[what] += slot.last.get(what, 0)

    def _end(self) -> None:
        """Ask everybody to finish, and wait until they have."""
        for slot in self.slots:
            slot.child.resume()
            slot.resumes_at = None
            slot.heard_at = time.monotonic()
            slot.child.tell("end")
        for slot in self.slots:
            while slot.last.get("event") != "done":
                self._watch()
                time.sleep(0.01)  # pause: polls
            assert slot.child.exit_code() == 0, slot.child.stderr
            self._retire(slot)

    def _descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def _stats(self) -> Report:
        stats: Report = self.server.ask("stats")["stats"]
        return stats

    def _report_hang(self, slot: Slot) -> None:
        slot.child.signal(signal.SIGUSR1)
        time.sleep(0.5)  # pause: for its stack to be written
        raise AssertionError(
            f"pid {slot.child.pid} got no batch for {HANG_SECS} s\nmanner: {slot.behaviour}\n"
            f"last: {slot.last}\nserver: {self._stats()}\nits stack: {slot.child.stderr}\n"
            f"{self.server.stderr}"
        )
