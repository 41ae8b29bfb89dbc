"""Objects of Python's own library that look something up: only what is found counts."""

from __future__ import annotations

import configparser
import contextvars
import inspect
import types
from collections.abc import Mapping
from typing import Any

from feedline._identity.part import Part
from feedline._identity.values import Items, Known, Maybe, Table, absent, constants, join, truth

_GETS = {"get", "getint", "getfloat", "getboolean"}
_HAS = {"has_section", "has_option"}


class StandardObjects(Part):
    """Configurations of ini files, context variables, and signatures of functions."""

    def call_method(
        self, receiver: Known, name: str, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe | None:
        """What a method gives; None for all but these."""
        value = receiver.value
        if isinstance(value, contextvars.ContextVar) and name == "get":
            return self._of_variable(receiver, args)
        is_section = isinstance(value, configparser.SectionProxy)
        if not is_section and not isinstance(value, configparser.RawConfigParser):
            return None
        path = [constants(one) for one in args[: 1 if is_section else 2]]
        names = [one[0] for one in path if one is not None and len(one) == 1]
        if len(names) != len(path) or not names or not receiver.label:
            return None
        for one in args[: len(path)]:
            self._follower.uses.use(one)
        if name in _GETS and len(names) == (1 if is_section else 2):
            otherwise = [*args[len(path) :], keywords.get("fallback", ())]
            return join(self._entry(receiver, names), *otherwise)
        if name in _HAS and not is_section:
            return truth(self._entry(receiver, names))
        return None

    def _entry(self, receiver: Known, names: list[Any]) -> Maybe:
        found: Maybe = (receiver,)
        for one in names:
            known = found[0] if found else None
            if not isinstance(known, Known) or not isinstance(known.value, Mapping):
                return found if known is not receiver else ()
            found = self._follower.containers.item_of_known(known, one)
        return found

    def _of_variable(self, receiver: Known, args: list[Maybe]) -> Maybe:
        try:
            found = receiver.value.get()
        except LookupError:
            return join(*args[:1], absent(f"{receiver.label}.get()"))
        return (self._recorder.known(found, f"{receiver.label}.get()"),)

    def signature(self, value: Any, args: list[Maybe]) -> Maybe | None:
        """``inspect.signature`` and ``getfullargspec``: names of a function's parameters."""
        function = args[0][0] if len(args) == 1 and len(args[0]) == 1 else None
        if not isinstance(function, Known) or not callable(function.value):
            return None
        try:
            found = inspect.signature(function.value).parameters
        except (TypeError, ValueError):
            return None
        if isinstance(function.value, types.FunctionType | type):
            label = function.value.__qualname__
            self._recorder.put(f"parameters of {label}", list(found))
        names: list[Maybe] = [(Known(name, ""),) for name in found]
        parameters: dict[Any, Maybe] = {
            name: (
                Table(
                    {
                        "name": (Known(name, ""),),
                        "default": (
                            self._recorder.known(one.default, f"{function.label}({name})"),
                        ),
                    }
                ),
            )
            for name, one in found.items()
        }
        if value is inspect.signature:
            return (Table({"parameters": (Table(parameters),)}),)
        return (Table({"args": (Items(names),)}),)
