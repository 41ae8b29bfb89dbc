"""Plants each fault of this folder into a copy of the crate, and has the simulator find it.

A fault is a patch whose first lines say what it breaks. One that the simulator doesn't find within
the given number of schedules is an error, and so is a patch that no longer applies: then the code
has changed, and the fault has to be planted anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent
ROOT = CRATE.parent.parent


def plant(patch: Path, folder: Path) -> str:
    """Make a workspace of nothing but the crate, with the fault in it; say what failed."""
    shutil.rmtree(folder, ignore_errors=True)
    copy = folder / "crates" / CRATE.name
    shutil.copytree(CRATE, copy, ignore=shutil.ignore_patterns("planted"))
    for file in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / file, folder)
    applied = subprocess.run(
        ["patch", "-p1", "--forward", "-i", patch], cwd=copy, capture_output=True, text=True
    )
    return "" if applied.returncode == 0 else f"does not apply: {applied.stdout}{applied.stderr}"


def find(folder: Path, target: Path, schedules: int) -> str:
    """Run the simulator; give the first line of what it found."""
    command = [
        "cargo",
        "test",
        "--quiet",
        "--offline",
        "--profile",
        "mutants",
        "--test",
        "simulator",
    ]
    env = os.environ | {"SCHEDULES": str(schedules), "CARGO_TARGET_DIR": str(target)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if "error: could not compile" in done.stderr:
        sys.exit(f"does not compile:\n{done.stderr}")
    lines = (done.stdout + done.stderr).splitlines()
    found = [line for line in lines if line.startswith("seed ") or "panicked at" in line]
    return found[-1] if done.returncode != 0 and found else ""


def main() -> None:
    """Plant all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--schedules", type=int, default=200_000)
    args = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "planted"
    patches = [Path(__file__).parent / f"{name}.patch" for name in args.names]
    missed = 0
    for patch in patches or sorted(Path(__file__).parent.glob("*.patch")):
        problem = plant(patch, target / "workspace")
        found = "" if problem else find(target / "workspace", target / "build", args.schedules)
        missed += not found
        print(f"{patch.stem}: {found or problem or 'NOT FOUND'}"[:200], flush=True)
    shutil.rmtree(target / "workspace", ignore_errors=True)
    sys.exit(f"{missed} not found" if missed else 0)


if __name__ == "__main__":
    main()
