"""Other people's packages, each in a virtual environment of its own, made on first use.

They live in `.venv-peers/` in the project's root, or in the folder that FEEDLINE_PEERS names. torch
is not installed twice: a .pth file lets a peer's environment find the project's own, after its own
packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

_PINNED = {"tensorsocket": ("tensorsocket==0.0.5", "pyzmq==27.3.0", "tornado==6.6.1")}
_INSTALL_SECS = 180.0


class PeerMissing(Exception):
    """The peer can't be installed here; the text says why."""


def _root() -> Path:
    chosen = os.environ.get("FEEDLINE_PEERS")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[1] / ".venv-peers"


def python_of(peer: str) -> Path:
    """Find the interpreter that has this peer; make its environment if there is none yet."""
    home = _root() / _PINNED[peer][0].replace("==", "-")
    python = home / "bin" / "python"
    if _imports(python, peer):
        return python
    shutil.rmtree(home, ignore_errors=True)
    try:
        venv.create(home, with_pip=True)
        _borrow_torch(home)
        _install(python, _PINNED[peer])
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise PeerMissing(f"{peer} could not be installed: {_reason(error)}") from error
    if not _imports(python, peer):
        raise PeerMissing(f"{peer} is installed but does not import")
    return python


def _borrow_torch(home: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    (packages / "project-torch.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _install(python: Path, pins: tuple[str, ...]) -> None:
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-input", *pins],
        check=True,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECS,
    )


def _imports(python: Path, peer: str) -> bool:
    if not python.exists():
        return False
    command = [str(python), "-c", f"import {peer}, torch"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except subprocess.SubprocessError:
        return False


def _reason(error: Exception) -> str:
    output = getattr(error, "stderr", None)
    lines = str(output).strip().splitlines() if output else []
    return lines[-1] if lines else str(error)
