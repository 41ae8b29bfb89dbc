"""Pickles functions for another process, by value, with what they refer to.

What is defined in a script or a notebook is in no module that the other process could import. It is
put into that process's ``__main__``, where its own children find it by name: a loader's workers
send batches, and what they raise, as pickles.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import pickle
import sys
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import cloudpickle

from feedline import _module_state
from feedline._attachment import Attachment
from feedline._errors import FeedValueError
from feedline._identity import State

_log = logging.getLogger("feedline")


class _MainPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Collects the objects of ``__main__`` that it pickles."""

    def __init__(self, file: io.BytesIO, feeds: Collection[str]) -> None:
        super().__init__(file)
        self.of_main: dict[str, Any] = {}
        self._feeds = feeds

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Attachment) and obj.name in self._feeds:
            raise FeedValueError(
                f'make_loader refers to feed "{obj.name}" itself: a variable that was the loader '
                "is the feed by now\n  inner = loader; feed = share(lambda: inner, ...)"
            )
        is_cached = isinstance(obj, functools._lru_cache_wrapper)
        is_code = is_cached or isinstance(obj, type | types.FunctionType)
        if is_code and obj.__module__ == "__main__":
            name = obj.__qualname__
            if vars(sys.modules["__main__"]).get(name) is obj:
                self.of_main[name] = obj
            if is_cached:
                # It pickles itself by its name, which the server's __main__ doesn't have yet.
                return _cached, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType:
            # torch.classes and its like: cloudpickle takes them along with a function that has
            # `torch` and `.classes` in it, and knows no modules of other types.
            names = [name for name, module in list(sys.modules.items()) if module is obj]
            if names:
                return importlib.import_module, (names[0],)
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], how: dict[str, Any]) -> Any:
    return functools.lru_cache(**how)(function)


def pack(makers: Mapping[str, Callable[[], Any]], state: State) -> bytes:
    """Pickle each feed's function, for ``unpack``; an error names what can't be pickled.

    ``state`` is what they read of modules. What of it can't be pickled is said, and left out.
    """
    try:
        return _packed(makers, state)
    except FeedValueError:
        raise
    except Exception:
        kept = _picklable(state, makers)
    try:
        return _packed(makers, kept)
    except Exception as error:
        raise FeedValueError(
            f"make_loader cannot be sent to the server's process: {error}\n"
            "  open files, connections and the like inside make_loader, not outside of it"
        ) from error


def _picklable(state: State, feeds: Collection[str]) -> State:
    kept, refused = {}, []
    for place, value in state.items():
        try:
            _MainPickler(io.BytesIO(), feeds).dump(value)
            kept[place] = value
        except Exception as error:
            refused.append(f"{'.'.join(place)} ({error})")
    if refused:
        _log.warning(
            "make_loader reads what cannot be sent to its server, which has it as a new import of "
            "the module makes it: %s\n  make it inside make_loader",
            "; ".join(refused),
        )
    return kept


def _packed(makers: Mapping[str, Callable[[], Any]], state: State) -> bytes:
    file = io.BytesIO()
    # One pickler: what functions and modules both refer to stays one object.
    pickler = _MainPickler(file, makers)
    pickler.dump(dict(makers))
    pickler.dump(state)
    pickler.dump(pickler.of_main)
    return file.getvalue()


def unpack(payload: bytes) -> dict[str, Callable[[], Any]]:
    """Return the functions by feed, and put their objects of ``__main__`` into our own."""
    unpickler = pickle.Unpickler(io.BytesIO(payload))
    makers: dict[str, Callable[[], Any]] = unpickler.load()
    state: State = unpickler.load()
    vars(sys.modules["__main__"]).update(unpickler.load())
    _module_state.put(state)
    return makers


def script_context() -> dict[str, Any]:
    """What a script sees of its process, for ``enter_script_context``."""
    return {
        "argv": sys.argv,
        "path": sys.path,
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "PYTHONPATH": os.environ.get("PYTHONPATH"),
    }


def enter_script_context(around: dict[str, Any]) -> None:
    """Take over the script's module path, its arguments, and its ``__main__``."""
    sys.path[:] = around["path"]
    sys.argv[:] = around["argv"]
    os.environ.pop("PYTHONPATH", None)
    if around["PYTHONPATH"] is not None:
        os.environ["PYTHONPATH"] = around["PYTHONPATH"]
    main = types.ModuleType("__main__")
    if around["main"] is not None:
        # Spawned children import it from there.
        main.__file__ = os.path.abspath(around["main"])
    # Spawned children call it by the second name.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
