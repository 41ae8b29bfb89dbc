"""Instances of the user's classes that are made when the loader's code runs."""

from __future__ import annotations

import dataclasses
import inspect
import types

from feedline._identity.data_loaders import what_is_loaded
from feedline._identity.origin import is_user_class, is_user_function
from feedline._identity.part import Part
from feedline._identity.values import (
    Bound,
    LibraryMethod,
    LocalClass,
    Made,
    Maybe,
    Table,
    is_dict_class,
)


class Classes(Part):
    """What making an instance reaches."""

    def construct(
        self, cls: type | LocalClass, args: list[Maybe], keywords: dict[str, Maybe]
    ) -> Maybe:
        made = Made(cls, content=Table({}) if is_dict_class(cls) else None)
        self._recorder.alive.append(made)
        if isinstance(cls, LocalClass):
            self._follower.uses.use(cls.bases)
            init = cls.functions.get("__init__")
            if init is not None:
                self._follower.calls.call_one(Bound(init, made), args, keywords)
            elif made.content is not None:
                self._follower.methods.call(LibraryMethod(made, "__init__"), args, keywords)
            else:
                self._follower.uses.use_all(args, keywords)
            return (made,)
        for base in cls.__mro__:
            if not is_user_class(base):
                self._recorder.note_package(base.__module__)
        if _is_record(cls):
            self._fill(made, cls, args, keywords)
            return (made,)
        for name in ("__new__", "__init__"):
            found = inspect.getattr_static(cls, name, None)
            function = getattr(found, "__func__", found)
            if isinstance(function, types.FunctionType) and is_user_function(function):
                self._follower.functions.call(function, [(made,), *args], keywords)
            elif made.content is not None:
                if name == "__init__":
                    self._follower.methods.call(LibraryMethod(made, name), args, keywords)
            elif name == "__init__" or not isinstance(found, types.BuiltinFunctionType):
                self._follower.uses.use_all(args, what_is_loaded(cls, keywords))
        return (made,)

    def _fill(self, made: Made, cls: type, args: list[Maybe], keywords: dict[str, Maybe]) -> None:
        """A dataclass or a named tuple: arguments are fields."""
        if dataclasses.is_dataclass(cls):
            names = [one.name for one in dataclasses.fields(cls) if one.init]
            for one in dataclasses.fields(cls):
                if one.default is not dataclasses.MISSING:
                    made.fields[one.name] = (
                        self._recorder.known(one.default, f"{cls.__qualname__}.{one.name}"),
                    )
                elif one.default_factory is not dataclasses.MISSING:
                    factory = self._recorder.known(
                        one.default_factory, f"{cls.__qualname__}.{one.name}"
                    )
                    made.fields[one.name] = self._follower.calls.call_one(factory, [], {})
        else:
            names = list(cls._fields)  # type: ignore[attr-defined]
        made.fields.update(zip(names, args, strict=False))
        made.fields.update(keywords)
        after = inspect.getattr_static(cls, "__post_init__", None)
        if isinstance(after, types.FunctionType):
            self._follower.functions.call(after, [(made,)], {})


def _is_record(cls: type) -> bool:
    """Whether its ``__init__`` was generated from its fields."""
    if dataclasses.is_dataclass(cls):
        init = inspect.getattr_static(cls, "__init__", None)
        return isinstance(init, types.FunctionType) and init.__code__.co_filename == "<string>"
    return issubclass(cls, tuple) and hasattr(cls, "_fields")
