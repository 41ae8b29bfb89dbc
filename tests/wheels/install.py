"""Installs a wheel into empty environments, and runs `smoke.py` there: without torch, and with it.

    python tests/wheels/install.py dist/feedline-*.whl

The environments are outside of the clone and have no PATH but their own, so neither the sources nor
cargo can help. They are removed whatever happens.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py")
# Variables through which the clone, or a feed of somebody else, would reach into an environment.
FOREIGN = ("PYTHON", "FEEDLINE_", "CARGO", "RUST", "PYO3_", "VIRTUAL_ENV")


def run(folder: Path, *command: str) -> None:
    """Run a program of the environment in this folder, and end with it if it fails."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    own = {
        "PATH": str(folder / "bin"),
        "FEEDLINE_DIR": str(folder / "feeds"),
        "TMPDIR": str(folder),
    }
    arguments = [str(folder / "bin" / command[0]), *command[1:]]
    # A group of its own: whatever ends this, nobody is left to write into a folder that goes.
    with subprocess.Popen(arguments, cwd=folder, env=kept | own, process_group=0) as process:
        try:
            failed = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if failed:
        sys.exit(f"{' '.join(command)} failed in an environment that has only the wheel")


def environment(folder: Path, *packages: str) -> None:
    """Make an environment with these packages. None of them is compiled."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-warn-script-location")
    run(folder, "python", "-m", "pip", "install", *quiet, "--only-binary", ":all:", *packages)
    shutil.copy(SMOKE, folder)


def lend_packages(folder: Path, packages: Path) -> None:
    """Make packages importable behind the environment's own; .pth files among them aren't read."""
    variables = {"base": str(folder), "platbase": str(folder)}
    own = Path(sysconfig.get_path("purelib", "venv", variables))
    (own / "lent.pth").write_text(f"{packages}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--torch-from",
        type=Path,
        metavar="FOLDER",
        help="a site-packages folder of this interpreter that has torch, which is else downloaded",
    )
    options = parser.parse_args()
    wheel: Path = options.wheel.resolve()
    lender: Path | None = options.torch_from and options.torch_from.resolve()
    # As a Ctrl-C does: through the `with`, which removes the environments.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    # Short, since a socket's address has 108 bytes.
    with tempfile.TemporaryDirectory(prefix="feedline.", dir="/tmp") as temporary:
        plain = Path(temporary, "plain")
        environment(plain, str(wheel))
        run(plain, "python", "smoke.py")

        with_torch = Path(temporary, "torch")
        if lender is None:
            environment(with_torch, str(wheel), "torch")
        else:
            environment(with_torch, "--no-deps", str(wheel))
            lend_packages(with_torch, lender)
        run(with_torch, "python", "smoke.py", "--torch")


if __name__ == "__main__":
    main()
