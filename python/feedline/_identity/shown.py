"""A value in a few words, for a message."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import types
import uuid
from typing import Any

from feedline._identity.parts import MOST_SHOWN
from feedline._identity.plain import PLAIN

BY_REPR: tuple[type, ...] = (
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID),
    *(decimal.Decimal, fractions.Fraction, range, slice, complex, type(NotImplemented)),
)
_SHOWN = (*PLAIN, list, tuple, dict, set, pathlib.PurePath)


def shown(value: Any, most: int = 80) -> str:
    """A value in a few words, for a message."""
    try:
        if isinstance(value, type | types.FunctionType):
            return str(value.__qualname__)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return f"{type_name(type(value))} of {value.dtype}, shape {tuple(value.shape)}"
        if isinstance(value, list | tuple | dict | set) and len(value) > MOST_SHOWN:
            text = counted(value)
        elif isinstance(value, str | bytes) and len(value) > most:
            text = repr(value[:most])
        elif isinstance(value, _SHOWN) or value is None:
            text = repr(str(value) if isinstance(value, pathlib.PurePath) else value)
        elif isinstance(value, (enum.Enum, *BY_REPR)):
            text = repr(value)
        else:
            text = f"a {type_name(type(value))}"
    except Exception:  # a __repr__ that raises
        text = f"a {type_name(type(value))}"
    text = text.replace("\n", "\\n")
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(value: Any) -> str:
    return f"a {type_name(type(value))} of {len(value)}"


def type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix(
        "__main__."
    )
