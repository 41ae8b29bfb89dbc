"""Modules that the user's code imports: those that are there, and those that will be."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import os
import sys
from typing import Any

from feedline._identity import sources
from feedline._identity.origin import is_user_module
from feedline._identity.part import Part
from feedline._identity.values import Maybe


class Modules(Part):
    """Modules by their names, and their files."""

    def module(self, name: str, *, quietly: bool = False) -> Maybe:
        if name in sys.modules:
            return (self._recorder.known(sys.modules[name], name),)
        if not quietly:
            self._effects.count += 1
            self.use_unimported(name)
        return ()

    def use_unimported(self, name: str) -> None:
        """A module that the loader will import: all of its file."""
        parts = name.split(".")
        try:
            folders: Any = None
            for number, _ in enumerate(parts):
                spec = importlib.machinery.PathFinder.find_spec(
                    ".".join(parts[: number + 1]), folders
                )
                if spec is None:
                    return
                folders = spec.submodule_search_locations
                if spec.origin:
                    self.use_file(spec.name, spec.origin)
        except (ImportError, ValueError, OSError):
            return

    def use_file(self, module: str, path: str) -> None:
        """All of a module's source, and of the user's modules that it imports."""
        if (
            not path.endswith(".py")
            or not is_user_module(module)
            or ("file", path) in self._follower.uses._begun
        ):
            return
        self._follower.uses._begun.add(("file", path))
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            return
        self._recorder.note_source(
            f"module {module}", os.path.basename(path), sources.digest_of(tree)
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                if is_user_module(name):
                    self.use_unimported(name)

    def use_target(self, path: str) -> None:
        """What a configuration names for a library to make: "package.module.Class"."""
        module, _, name = path.rpartition(".")
        for found in self.module(module) if module and is_user_module(module) else ():
            self._follower.uses.use(self._follower.attributes.get(found, name))
