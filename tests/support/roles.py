"""Ordinary roles of a child process: a server, and consumers that check every byte."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import feedline
from support import loaders
from support.child import hear, say
from support.reading import read


def serve(
    name: str = "train",
    loader: str = "Numbered",
    loader_args: list[Any] | None = None,
    loader_options: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Serve a loader of loaders.py, or of another module: `module:name`.

    Answers `stats`; `stop` or a closed pipe ends it.
    """
    module, _, attribute = loader.rpartition(":")
    make = getattr(importlib.import_module(module) if module else loaders, attribute)
    source = make(*(loader_args or []), **(loader_options or {}))
    server = feedline.Server(source, name, **options)
    server.start()
    say("ready")
    threading.Thread(target=_obey, args=(server,), daemon=True).start()
    server.wait()
    say("done", stats=server.stats())


def _obey(server: feedline.Server) -> None:
    while hear() == "stats":
        say("stats", stats=server.stats())
    server.stop()


def consume(
    name: str = "train",
    epochs: int = 1,
    **options: Any,
) -> None:
    """Read whole epochs and report each."""
    feed = feedline.attach(name, **options)
    say("attached", server_pid=feed.stats()["server_pid"])
    for _ in range(epochs):
        try:
            length = len(feed)
        except TypeError:
            length = None
        say("epoch", len=length, **read(feed).as_json())
    say("done", stats=feed.stats())


def take_and_hold(name: str = "train", batches: int = 1, **options: Any) -> None:
    """Take a few batches, keep them and the place in the epoch, and wait to be told."""
    feed = feedline.attach(name, **options)
    iterator = iter(feed)
    held = [next(iterator) for _ in range(batches)]
    say("holding", batches=len(held))
    hear()
    say("done", **read(held).as_json())


def follow(name: str = "train", **options: Any) -> None:
    """Read epoch after epoch until something is raised, and report every batch's keys."""
    feed = feedline.attach(name, **options)
    say("attached")
    while True:
        for batch in feed:
            say("batch", **read([batch]).as_json())
