"""What the numbers were measured on: processor, kernel, versions. No host name and no path."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "numpy", "pillow", "feedline")},
    }


def short_name(machine: dict[str, Any]) -> str:
    """`amd-epyc-2cpu`: enough to tell two machines apart in a list of files."""
    model = re.sub(r"\(.*?\)|@.*|\b(cpu|processor)\b", " ", str(machine["cpu"]).lower())
    words = re.findall(r"[a-z0-9]+", model)
    return "-".join([*words[:4], f"{machine['cpus']}cpu"])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
