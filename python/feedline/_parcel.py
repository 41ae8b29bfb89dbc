"""Functions on their way to another process, by value, with what they refer to.

What is defined in a script or a notebook is in no module that the other process could import. It is
put into that one's ``__main__``, where its own children find it by name: a loader's workers send
batches, and what they raise, as pickles.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import cloudpickle

from feedline._errors import FeedValueError
from feedline._seat import Seat


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes note of what it packs that is ``__main__``'s."""

    def __init__(self, file: io.BytesIO, feeds: Collection[str]) -> None:
        super().__init__(file)
        self.of_main: dict[str, Any] = {}
        self._feeds = feeds

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Seat) and obj.name in self._feeds:
            raise FeedValueError(
                f'make_loader refers to feed "{obj.name}" itself: a variable that was the loader '
                "is the feed by now\n  inner = loader; feed = share(lambda: inner, ...)"
            )
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if vars(sys.modules["__main__"]).get(name) is obj:
                self.of_main[name] = obj
        return super().reducer_override(obj)


def pack(makers: Mapping[str, Callable[[], Any]]) -> bytes:
    """Give the bytes of each feed's function, for ``unpack``; an error names what can't travel."""
    file = io.BytesIO()
    packer = _Packer(file, makers)
    try:
        packer.dump(dict(makers))
        packer.dump(packer.of_main)
    except FeedValueError:
        raise
    except Exception as error:
        raise FeedValueError(
            f"make_loader cannot be sent to the server's process: {error}\n"
            "  open files, connections and the like inside make_loader, not outside of it"
        ) from error
    return file.getvalue()


def unpack(parcel: bytes) -> dict[str, Callable[[], Any]]:
    """The functions by feed, and what they brought along of ``__main__`` in our own."""
    unpacker = pickle.Unpickler(io.BytesIO(parcel))
    makers: dict[str, Callable[[], Any]] = unpacker.load()
    vars(sys.modules["__main__"]).update(unpacker.load())
    return makers


def surroundings() -> dict[str, Any]:
    """What a script sees of its process, for ``settle``."""
    return {
        "argv": sys.argv,
        "path": sys.path,
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "PYTHONPATH": os.environ.get("PYTHONPATH"),
    }


def settle(around: dict[str, Any]) -> None:
    """Find modules as the script does, have its arguments, and make ``__main__`` pass for it."""
    sys.path[:] = around["path"]
    sys.argv[:] = around["argv"]
    os.environ.pop("PYTHONPATH", None)
    if around["PYTHONPATH"] is not None:
        os.environ["PYTHONPATH"] = around["PYTHONPATH"]
    main = types.ModuleType("__main__")
    if around["main"] is not None:
        # Children that are spawned, not forked, import it from there.
        main.__file__ = os.path.abspath(around["main"])
    # The second name is what they call it.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
