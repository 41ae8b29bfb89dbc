"""What a piece of source shows by itself: the variables that it sets, and how it ends."""

from __future__ import annotations

import ast


def leaves(block: list[ast.stmt]) -> bool:
    """Whether what stands after a block may be left out."""
    return returns(block) or leaves_loop(block)


def returns(block: list[ast.stmt]) -> bool:
    return any(isinstance(one, ast.Return) for statement in block for one in ast.walk(statement))


def leaves_loop(block: list[ast.stmt]) -> bool:
    kinds = (ast.Break, ast.Continue)
    return any(isinstance(one, kinds) for statement in block for one in ast.walk(statement))


def raises_again(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


def assigned(block: list[ast.stmt]) -> set[str]:
    """The variables that a block sets."""
    found: set[str] = set()
    for statement in block:
        for one in ast.walk(statement):
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                found.add(one.id)
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(one.name)
            elif isinstance(one, ast.alias):
                found.add(one.asname or one.name.partition(".")[0])
            elif isinstance(one, ast.pattern):
                found.update(captured(one))
    return found


def captured(pattern: ast.pattern) -> set[str]:
    """The variables that a pattern of a match sets."""
    names = [getattr(one, field, None) for one in ast.walk(pattern) for field in ("name", "rest")]
    return {name for name in names if isinstance(name, str)}


def name_of(node: ast.AST) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))
