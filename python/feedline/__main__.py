"""The command line: ``feedline``, or ``python -m feedline``."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from typing import Any

from feedline._core import cli

_COMMANDS = {
    "serve": "feedline._cli.serve",
    "bench": "feedline._cli.bench",
    "demo": "feedline.demo.command",
}


def main() -> int:
    """Run a command line. Commands that need no Python run in the extension."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is not signal.SIG_IGN:
        # Python's own handler would only run once Python code runs again.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    code, command, options, of_server = cli(sys.argv[1:], [sys.executable, "-m", "feedline"])
    if code is not None:
        return code
    signal.signal(signal.SIGINT, interrupt)
    try:
        run: Any = importlib.import_module(_COMMANDS[command]).run
        arguments = json.loads(options)
        if command == "serve":
            arguments["options"] = of_server
        return int(run(**arguments))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
