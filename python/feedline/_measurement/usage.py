"""CPU-seconds and memory of whole process groups, workers included; the cores there are."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


# The unit of CPU time.
CPU_TICK_SECS = 1 / _TICKS_PER_SEC


class Usage(NamedTuple):
    processes: int
    cpu_secs: float


def _members(groups: Collection[int]) -> list[tuple[int, list[str]]]:
    """(pid, the fields of its ``stat`` from the state on) of every live process in `groups`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        # The command's name, in parentheses, may hold spaces.
        fields = stat[stat.rindex(")") + 2 :].split()
        if int(fields[2]) in groups and fields[0] != "Z":
            found.append((int(entry), fields))
    return found


def usage(groups: Collection[int]) -> Usage:
    """How many processes there are, and what CPU time they and their reaped children used."""
    members = _members(groups)
    ticks = sum(int(field) for _, fields in members for field in fields[11:15])
    return Usage(len(members), ticks / _TICKS_PER_SEC)


def allowed_cpus() -> set[int]:
    """The CPUs that this process, and so its children, may run on."""
    return os.sched_getaffinity(0)


def allowed_cores() -> float:
    """How many cores they may keep busy: as many as those CPUs, or less by a quota."""
    return min(len(allowed_cpus()), quota_cores())


def quota_cores(root: Path = Path("/")) -> float:
    """The tightest limit on the way from our control group to the root, in either interface."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    tightest = math.inf
    for _, controllers, path in (line.split(":", 2) for line in groups):
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            # There may be no limit, or it is "max", or -1.
            with contextlib.suppress(OSError, ValueError):
                words = " ".join((folder / file).read_text() for file in files).split()
                quota, period = map(float, words)
                tightest = min(tightest, quota / period if quota > 0 else math.inf)
    return tightest


def busy_cpu_secs() -> float:
    """CPU time that the allowed CPUs have spent, for any process; 0 if it isn't known."""
    ours = {f"cpu{number}" for number in allowed_cpus()}
    try:
        rows = [row.split() for row in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return 0.0
    # user, nice, system; then idle, iowait; then irq, softirq, steal.
    ticks = (int(tick) for name, *row in rows if name in ours for tick in (*row[:3], *row[5:8]))
    return sum(ticks) / _TICKS_PER_SEC


def memory_bytes(groups: Collection[int]) -> int:
    """Proportional set size, summed: a page that several processes share counts once in all.

    Costs some milliseconds a process, so don't ask often while something is being measured.
    """
    total = 0
    for pid, _ in _members(groups):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(row.split()[1]) for row in rollup.splitlines() if row.startswith("Pss:"))
    return total * 1024
