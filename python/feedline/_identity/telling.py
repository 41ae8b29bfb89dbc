"""What only tells somebody something: prints, logs, files that are written."""

from __future__ import annotations

import builtins
import logging
import os
import pprint
import shutil
import sys
import types
from typing import Any

from feedline._identity.values import Atom, Known, LibraryMethod

# What tells the user something, or makes a folder for it: nothing that is loaded depends on it.
_TELLS = {
    id(one)
    for one in (
        print,
        id,
        os.makedirs,
        os.mkdir,
        os.remove,
        os.unlink,
        shutil.rmtree,
        pprint.pprint,
    )
}
_TELLING_MODULES = {"logging", "warnings", "_warnings", "traceback"}
_TELLING_METHODS = {"mkdir", "touch", "write_text", "write_bytes"}
# Libraries that keep a record of a run, and what they are told by; and one that shows progress.
_TRACKERS = {
    *("wandb", "tensorboard", "tensorboardX", "mlflow", "loguru", "rich", "absl", "comet_ml"),
    *("neptune", "clearml", "aim", "swanlab", "tqdm"),
}
TRACKING = {
    *("log", "log_param", "log_params", "log_metric", "log_metrics", "log_artifact", "set_tag"),
    *("set_tags", "watch", "alert", "define_metric", "add_scalar", "add_scalars", "add_text"),
    *("add_image", "add_images", "add_histogram", "add_hparams", "add_figure", "flush", "print"),
    *("write", "debug", "info", "success", "warning", "error", "critical", "exception", "trace"),
}
LOGGERS = (logging.Logger, logging.LoggerAdapter)
# Without the module site there is no exit and no quit.
EXITS = {id(sys.exit)} | {id(getattr(builtins, name, sys.exit)) for name in ("exit", "quit")}
# What is written to: whatever is told to it is only told.
SINK = Known(logging.getLogger("feedline"), "")
# What writes something to a file that it is given.
WRITES = {"dump", "safe_dump", "writer", "DictWriter", "save", "savetxt", "write"}


def tells(atom: Atom) -> bool:
    """Whether calling something only tells somebody something.

    A tracker that isn't installed is None in many scripts.
    """
    if isinstance(atom, Known):
        return tells_function(atom.value)
    if not isinstance(atom, LibraryMethod):
        return False
    value = atom.receiver.value if isinstance(atom.receiver, Known) else None
    is_output = value is not None and (value is sys.stdout or value is sys.stderr)
    is_missing = isinstance(atom.receiver, Known) and value is None
    if atom.name in TRACKING and (is_missing or _is_of_tracker(type(value))):
        return True
    is_logger = isinstance(value, LOGGERS)
    return is_output or is_logger or atom.name in _TELLING_METHODS


def tells_function(function: Any) -> bool:
    """The same for a function that exists."""
    module = getattr(function, "__module__", None)
    is_function = isinstance(function, types.FunctionType | types.BuiltinFunctionType)
    if getattr(function, "__name__", "") in TRACKING and _is_of_tracker(function):
        return True
    return id(function) in _TELLS or (is_function and module in _TELLING_MODULES)


def _is_of_tracker(code: Any) -> bool:
    module = str(getattr(code, "__module__", ""))
    return module.partition(".")[0] in _TRACKERS or module.startswith("torch.utils.tensorboard")
