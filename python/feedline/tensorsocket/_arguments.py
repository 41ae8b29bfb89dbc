"""TensorSocket's arguments, checked and turned into a feed's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from feedline._errors import FeedValueError

_log = logging.getLogger("feedline")

_ACK_PORT = 5556
_HEART_PORTS = (4444, 4445)

_said: set[str] = set()


def feed_name(port: object) -> str:
    """Give the name of the feed that stands for a port, which scripts write as int or as str."""
    number = None
    if isinstance(port, str) and port.isascii() and port.isdigit():
        number = int(port)
    elif hasattr(port, "__index__") and not isinstance(port, bool):
        number = int(port.__index__())
    if number is None or not 0 < number < 2**16:
        raise FeedValueError(
            f"port={port!r} is not a port\n"
            "  give the producer and its consumers the same number from 1 to 65535"
        )
    return f"tensorsocket-{number}"


def ignore_ports(ack_port: object, heart_ports: object) -> None:
    """Say once that the other ports are not needed, if somebody chose them."""
    if str(ack_port) != str(_ACK_PORT) or heart_ports != _HEART_PORTS:
        say_once("ack_port and heart_ports have no meaning here: a feed is found by its name")


def say_once(message: str) -> None:
    """Log what a user of TensorSocket may wonder about, once in a process."""
    if message not in _said:
        _said.add(message)
        _log.info(message)


def share_of_epoch(rubber_band_pct: object) -> float:
    """Give the share of an epoch that is kept: in spite of its name it is no percentage."""
    try:
        share = float(rubber_band_pct)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = float("nan")
    if share != share:
        raise FeedValueError(
            f"rubber_band_pct={rubber_band_pct!r} is not a share of the epoch\n"
            "  write 0.02 for a fiftieth, 1.0 for all of it"
        )
    return min(max(share, 0.0), 1.0)


def count(what: str, value: object) -> int:
    """Check a number of batches."""
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = int(value.__index__())
        if number > 0:
            return number
    raise FeedValueError(f"{what}={value!r} is not a number of batches\n  give an int, at least 1")


def function(what: str, value: Any) -> Callable[[Any], Any]:
    """Check a function."""
    if not callable(value):
        raise FeedValueError(f"{what}={value!r} can't be called\n  give a function of one batch")
    checked: Callable[[Any], Any] = value
    return checked
