"""The source of code that runs, as a syntax tree: found by its place, compared without its looks.

Comments, blank lines, docstrings and where a function stands don't count.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import linecache
import os
import time
import types
from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Instructions that stand for no expression.
_NOWHERE = {
    "RESUME",
    "RETURN_VALUE",
    "RETURN_CONST",
    "COPY_FREE_VARS",
    "MAKE_CELL",
    "RETURN_GENERATOR",
}
# What a coarse clock may be wrong by.
_CLOCK_SECS = 0.1


def find(code: types.CodeType, *, is_sent: bool) -> FunctionNode | None:
    """The function that a code object was compiled from; None where its source isn't known.

    A function that ``is_sent`` travels as it is in this process: if its file was changed since the
    process began, the file may tell of another one.
    """
    path = code.co_filename
    linecache.checkcache(path)
    text = "".join(linecache.getlines(path))
    line = code.co_firstlineno
    if _was_changed(path):
        place = _place_in(text, path, code, is_sent=is_sent)
        if place is None:
            return None
        line = place
    found = [node for node in _functions(text).get(line, ()) if _is(node, code, line)]
    # A lambda stands in the innermost of the expressions that hold all of it.
    found.sort(key=_length)
    is_moved = line != code.co_firstlineno
    is_clear = len(found) == 1 or (
        len(found) > 1 and not is_moved and _length(found[0]) < _length(found[1])
    )
    return found[0] if is_clear else None


def _place_in(text: str, path: str, code: types.CodeType, *, is_sent: bool) -> int | None:
    """The line of a function in a file that was changed since: where the same code stands now.

    A module is imported anew by the server: there the function of that name counts, even if it
    does something else now.
    """
    try:
        places = _codes(text, path)[code.co_qualname]
    except (KeyError, SyntaxError, ValueError, RecursionError):
        return None
    same = [line for line, digest in places if digest == digest_of_code(code)]
    if code.co_firstlineno in same:
        return code.co_firstlineno
    lines = same if same or is_sent else [line for line, _ in places]
    return lines[0] if len(lines) == 1 else None


@functools.lru_cache(maxsize=16)
def _codes(text: str, path: str) -> dict[str, list[tuple[int, str]]]:
    """All functions of a file by name, each with its line and what it does."""
    found: dict[str, list[tuple[int, str]]] = {}
    left = [compile(text, path, "exec", dont_inherit=True)]
    while left:
        for one in left.pop().co_consts:
            if isinstance(one, types.CodeType):
                place = (one.co_firstlineno, digest_of_code(one))
                found.setdefault(one.co_qualname, []).append(place)
                left.append(one)
    return found


def _length(node: FunctionNode) -> tuple[int, int]:
    lines = (node.end_lineno or node.lineno) - node.lineno
    return lines, (node.end_col_offset or 0) - (0 if lines else node.col_offset)


def _was_changed(path: str) -> bool:
    try:
        return os.stat(path).st_mtime > _process_began() + _CLOCK_SECS
    except OSError:
        return False


@functools.cache
def _process_began() -> float:
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> dict[int, list[FunctionNode]]:
    """All functions of a file, by the line that their code begins with."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            found.setdefault(min([node.lineno, *(one.lineno for one in decorators)]), []).append(
                node
            )
    return found


def _is(node: FunctionNode, code: types.CodeType, line: int) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    is_moved = line != code.co_firstlineno
    if name != code.co_name or (not is_moved and parameters(node) != parameters_of(code)):
        return False
    if is_moved:
        return True  # it stood elsewhere when it was compiled
    return not isinstance(node, ast.Lambda) or _is_within(code, node.body)


def _is_within(code: types.CodeType, body: ast.expr) -> bool:
    """Whether all that code does stands in an expression; several lambdas may stand in one line."""
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    for one in dis.get_instructions(code):
        place = one.positions
        if place is None or None in place or one.opname in _NOWHERE:
            continue
        begins, ends = (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)
        if begins == (code.co_firstlineno, 0) == (ends[0], ends[1]):
            continue  # of the whole function
        if begins < first or ends > last:
            return False
    return True


def parameters(node: FunctionNode) -> list[str]:
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names + [one.arg for one in (given.vararg, given.kwarg) if one is not None]


def parameters_of(code: types.CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return list(code.co_varnames[:count])


@functools.lru_cache(maxsize=1024)
def digest_of(node: ast.AST) -> str:
    """The same for two trees that do the same and look different."""
    hasher = hashlib.blake2b(digest_size=12)
    for token in _tokens(node):
        hasher.update(token.encode("utf-8", "backslashreplace") + b"\0")
    return hasher.hexdigest()


def _tokens(node: object) -> Iterator[str]:
    if isinstance(node, list):
        yield f"[{len(node)}"
        for one in node:
            yield from _tokens(one)
    elif isinstance(node, ast.AST):
        yield type(node).__name__
        for field, value in ast.iter_fields(node):
            if field in ("ctx", "type_comment", "kind", "type_params", "annotation", "returns"):
                continue
            if field == "body" and isinstance(value, list):
                value = without_docstring(value)
            yield from _tokens(value)
    else:
        yield repr(node)


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


def digest_of_code(code: types.CodeType) -> str:
    """The same for what has no source: what it does, not where it stands."""
    parts = [
        code.co_code.hex(),
        repr(code.co_names),
        repr(code.co_varnames),
        repr(code.co_freevars),
    ]
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            parts.append(digest_of_code(one))
        elif isinstance(one, frozenset):
            parts.append(repr(sorted(map(repr, one))))
        else:
            parts.append(repr(one))
    return hashlib.blake2b(
        "\0".join(parts).encode("utf-8", "backslashreplace"), digest_size=12
    ).hexdigest()


def chains(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The variables from outside that code loads, each with the attributes that it asks of them."""
    root: str | None = None
    chain: tuple[str, ...] = ()
    for one in dis.get_instructions(code):
        if one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and root is not None:
            chain += (str(one.argval),)
            continue
        if one.opname.startswith(("PUSH_NULL", "CACHE", "RESUME")):
            continue
        if root is not None:
            yield root, chain
        from_outside = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF")
        root, chain = (str(one.argval) if one.opname in from_outside else None), ()
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from chains(const)


def shown(node: FunctionNode, code_path: str) -> str:
    """A lambda itself, if it is short; else where a function stands."""
    if isinstance(node, ast.Lambda):
        text = ast.unparse(node)
        if len(text) <= 80 and "\n" not in text:
            return text
    return f"{os.path.basename(code_path)}:{node.lineno}"
