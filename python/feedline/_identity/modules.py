"""Modules that the user's code imports: those that are there, and those that will be."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.machinery
import os
import sys
from typing import Any

from feedline._identity import sources
from feedline._identity.origin import is_library_file, is_user_module
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
        # A library that isn't imported yet is known by nothing but its folder.
        is_user = is_user_module(module) and not is_library_file(path)
        if path.endswith(".py") and is_user:
            act = functools.partial(self._use_source, module, path)
            self._follower.uses.once(("file", path), act)

    def _use_source(self, module: str, path: str) -> None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            return
        self._recorder.note_source(
            f"module {module}", os.path.basename(path), sources.digest_of(tree)
        )
        is_package = os.path.basename(path) == "__init__.py"
        package = module if is_package else module.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                origin = imported_from(node, package)
                # What is imported from a package may be a module of it.
                names = [origin, *(f"{origin}.{one.name}" for one in node.names)]
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


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """The module that a ``from`` names, in a module of a package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])
