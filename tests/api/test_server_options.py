"""An option is declared once: all else follows from that, and nothing spells it again."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline._core import server_options
from feedline._errors import Explanation, explained, given, option
from feedline._options import check_options
from support.commands import binary, run
from support.server_options import PLACE, source

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "crates/feedline-core/src/options/mod.rs"
OPTIONS = {keyword: default for keyword, _, default, _ in server_options()}
# attach() has keywords of the same names, and no flags.
OF_ATTACH = inspect.signature(feedline.attach).parameters.keys() & OPTIONS.keys()


def flag(keyword: str) -> str:
    return f"--{keyword.replace('_', '-')}"


def test_what_type_checkers_are_told_is_the_table() -> None:
    assert PLACE.read_text() == source(), "run: make options"


@pytest.mark.parametrize("function", [feedline.Server, feedline.serve, feedline.share])
def test_signatures_show_every_option(function: Any) -> None:
    shown = inspect.signature(function).parameters
    for keyword, default in OPTIONS.items():
        assert shown[keyword].kind is inspect.Parameter.KEYWORD_ONLY
        if (function, keyword) != (feedline.share, "linger_secs"):
            assert shown[keyword].default == default
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())


@pytest.mark.parametrize("function", [feedline.Server, feedline.serve, feedline.share])
def test_a_keyword_that_there_is_not(function: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'histroy'") as error:
        function([], "train", histroy=0.5) if function is not feedline.share else function(
            list, "train", histroy=0.5
        )
    called = re.match(r"(\w+)\(\)", str(error.value))
    assert called is None or called[1] == function.__name__, "another function than was called"


def test_help_shows_every_option() -> None:
    shown = " ".join(run("serve", "--help", program=binary()).stdout.split())
    for keyword, _, _, about in server_options():
        # `<N>` or the like between them, unless it is a switch.
        assert re.search(rf"{flag(keyword)} (<\S+> )?{re.escape(about)}", shown), keyword


@pytest.mark.parametrize("keyword", OPTIONS)
def test_the_guide_documents_it(keyword: str) -> None:
    pages = [*ROOT.glob("docs/guide/*.md"), ROOT / "docs/security.md"]
    text = "".join(page.read_text() for page in pages)
    assert re.search(rf"\b{keyword}=|`{keyword}`|{flag(keyword)}\b", text), "the guide lacks it"


@pytest.mark.parametrize("keyword", OPTIONS)
def test_what_cannot_be_is_refused_in_the_words_of_the_reader(keyword: str) -> None:
    options: dict[str, Any] = {keyword: object()}
    with pytest.raises(feedline.FeedValueError) as refused:
        feedline.Server([], "train", **options)
    error = refused.value
    assert str(error).startswith(f"{keyword}=<object object at ")
    for same in (error, pickle.loads(pickle.dumps(error))):
        message = same.args[0]
        assert isinstance(message, Explanation)
        assert message == str(error)
        assert message.for_command_line().startswith(f"{flag(keyword)} <object object at ")
        assert f"{keyword}=" not in message.for_command_line()


class _Unshowable:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("keyword", "value", "said"),
    [
        ("linger_secs", np.array([1.0, 2.0]), "linger_secs=array([1., 2.]) is not a time to wait"),
        ("lag", np.array(["skip"]), "lag=array(['skip'], dtype='<U4') is not one of"),
        ("state_file", "\ud800", "state_file='\\ud800' is not a path"),
        ("history", _Unshowable(), "history=<_Unshowable> is neither"),
        ("epochs", 1 << 200, f"epochs={1 << 200} is too large: it is at most {2**64 - 1}"),
        ("epochs", -(1 << 200), f"epochs={-(1 << 200)} is too small: it is at least 1"),
        ("epochs", 1 << 20000, f"epochs={1 << 20000:#x} is too large"),
        ("ring", "512", "ring='512' has no unit\n  write 512 without quotes for so many samples"),
        ("stall_timeout_secs", 1e10, "is not a time to wait\n  give a number of seconds from 0 to"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else "",
)
def test_a_refusal_names_the_option_and_shows_the_value(
    keyword: str, value: Any, said: str
) -> None:
    with pytest.raises(feedline.FeedValueError) as refused:
        check_options({keyword: value})
    assert said in str(refused.value)
    message = refused.value.args[0]
    assert isinstance(message, Explanation)
    assert message.for_command_line().startswith(flag(keyword))


def test_a_tensor_of_several_numbers_is_no_time() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(feedline.FeedValueError, match=r"^linger_secs=tensor\(\[1., 2.\]\) is not"):
        check_options({"linger_secs": torch.tensor([1.0, 2.0])})
    assert check_options({"linger_secs": torch.tensor(2.0)})["linger_secs"] == 2.0


def test_defaults_may_be_given() -> None:
    checked = check_options(OPTIONS)
    assert {keyword: checked[keyword] for keyword in OPTIONS} == OPTIONS


def test_an_explanation_is_worded_for_its_reader() -> None:
    said = explained(
        *(given("epochs", 3), " of a generator"),
        hint=("leave out ", option("epochs"), ", or say ", ("replay", "value", True)),
    )
    assert said == "epochs=3 of a generator\n  leave out epochs=, or say replay=True"
    flags = "--epochs 3 of a generator\n  leave out --epochs, or say --replay"
    assert said.for_command_line() == flags


# --- nothing is spelled twice -------------------------------------------------------------------


def test_every_option_is_declared_in_one_place() -> None:
    text = TABLE.read_text()
    for keyword in OPTIONS:
        assert len(re.findall(rf"^    {keyword}: .+ = ", text, re.MULTILINE)) == 1, keyword
    for path in sorted((ROOT / "python/feedline").rglob("*.py*")):
        if path.suffix not in (".py", ".pyi") or path == PLACE:
            continue
        found = [*_declared(ast.parse(path.read_text()))]
        if path.name == "_dataloader.py":
            # A loader without a server has a seed of its own.
            found.remove("__init__(seed=)")
        assert not found, f"{path}: {found}"


def test_no_text_names_an_option() -> None:
    """Messages name options as data, so that each reader gets the own words."""
    sources = [path for path in ROOT.glob("crates/*/src/**/*.rs") if path.stem != "tests"]
    sources += (ROOT / "python/feedline").rglob("*.py")
    for path in sources:
        read = _python_strings if path.suffix == ".py" else _rust_strings
        for text in read(path.read_text()):
            for keyword in OPTIONS:
                spelt = rf"(?<![\w-]){flag(keyword)}\b"
                if keyword not in OF_ATTACH:
                    spelt += rf"|(?<![\w.]){keyword}=(?!=)"
                assert not re.search(spelt, text), f"{path}: {text!r} has words for {keyword}"


def _declared(tree: ast.AST) -> Iterator[str]:
    """Options that are parameters with a default, or keys with a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name not in ("attach", "share"):
            arguments = node.args
            with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
            with_default += [
                one
                for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                if default is not None
            ]
            yield from (f"{node.name}({one.arg}=)" for one in with_default if one.arg in OPTIONS)
        if isinstance(node, ast.ClassDef) and any(
            "TypedDict" in ast.dump(one) for one in node.bases
        ):
            yield from (
                key.target.id
                for key in node.body
                if isinstance(key, ast.AnnAssign)
                and isinstance(key.target, ast.Name)
                and key.target.id in OPTIONS
            )


def _python_strings(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def _rust_strings(source: str) -> Iterator[str]:
    code = source.partition("#[cfg(test)]\nmod tests {")[0]
    code = re.sub(r"^\s*//.*$", "", code, flags=re.MULTILINE)
    for text in re.findall(r'"((?:[^"\\]|\\.)*)"', code, re.DOTALL):
        # Examples of command lines are documentation.
        yield "\n".join(line for line in text.splitlines() if not line.startswith("  feedline "))
