"""What a loader is known by: the same in jobs that load the same, another in those that don't."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from feedline._identity import identity_of
from support.identity_other import OTHER
from support.identity_same import SAME
from support.identity_scripts import differing, identity, labels, run, write_module

OTHERS = ("--lr", "0.5", "--seed", "7", "--out", "runs/b", "--workers", "6")


@pytest.mark.parametrize("how", SAME)
def test_other_learning_rates_seeds_and_folders_are_the_same_loader(how: str) -> None:
    first, second = identity(SAME[how]), identity(SAME[how], *OTHERS)
    assert differing(first, second) == set()
    assert not first.opaque


@pytest.mark.parametrize("how", SAME)
def test_another_size_is_another_loader(how: str) -> None:
    assert differing(identity(SAME[how]), identity(SAME[how], "--size", "200"))


@pytest.mark.parametrize("how", OTHER)
def test_what_changes_what_is_loaded_is_found(how: str) -> None:
    first_line, text = textwrap.dedent(OTHER[how]).strip().split("\n", 1)
    one, other = first_line.removeprefix("#").split("|")
    one, other = one.strip(), other.strip()
    first = identity(text.replace("$", one))
    assert differing(first, identity(text.replace("$", one))) == set()
    assert differing(first, identity(text.replace("$", other)))


def test_a_difference_is_named_with_its_path() -> None:
    found = differing(
        identity(SAME["a function of args"]), identity(SAME["a function of args"], "--size", "3")
    )
    assert found == {"args.size"}
    shown = labels(identity(SAME["a function of args"], "--size", "3"))
    assert shown["args.size"] == "3"
    assert "args.lr" not in shown


def test_looks_do_not_count() -> None:
    plain = "def make_loader():\n    return DataLoader(D('/d', 3))"
    dressed = (
        "# a comment\n\ndef make_loader():\n    '''Says what it does.'''\n"
        "    return DataLoader(\n        D('/d',  # the folder\n        3))"
    )
    assert differing(identity(plain), identity(dressed)) == set()


def test_two_lambdas_in_one_line_are_told_apart() -> None:
    text = "both = [lambda: [np.zeros(1)], lambda: [np.zeros(2)]]\nmake_loader = both[%d]"
    assert differing(identity(text % 0), identity(text % 1))


def test_a_module_that_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for value in (1, 1, 22):
        write_module(tmp_path, "beside_fl", f"def helper(x):\n    return x + {value}\n")
        found.append(
            identity(
                "import importlib, linecache\nimportlib.invalidate_caches()\n"
                "linecache.checkcache()\nimport beside_fl\n"
                "make_loader = lambda: DataLoader(D('/d', 3), collate_fn=beside_fl.helper)"
            )
        )
    assert differing(found[0], found[1]) == set()
    assert differing(found[0], found[2]) == {"source of beside_fl.helper"}


def test_a_module_that_only_the_loader_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for value in (1, 1, 2):
        write_module(tmp_path, "deeper_fl", f"VALUE = {value}\n")
        write_module(
            tmp_path, "later_fl", "import deeper_fl\ndef load():\n    return deeper_fl.VALUE\n"
        )
        found.append(
            identity("def make_loader():\n    import later_fl\n    return [later_fl.load()]")
        )
    assert differing(found[0], found[1]) == set()
    assert differing(found[0], found[2]) == {"source of module deeper_fl"}


def test_a_relative_path_is_another_one_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "root = 'train_fl'\nmake_loader = lambda: DataLoader(D(root, 3))"
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder / "train_fl").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / folder)
        found.append(identity(text))
    assert differing(*found) == {"root, as a path"}


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    scope = run(f"file = open({str(tmp_path / 'file')!r})\nmake_loader = lambda: [file]")
    found = identity_of(scope["make_loader"])
    assert found.opaque == {"file": "an open file"}


def test_odd_objects_do_no_harm() -> None:
    text = """
        class Odd:
            def __repr__(self):
                raise RuntimeError("no")
            def __getstate__(self):
                raise RuntimeError("no")
            @property
            def size(self):
                raise RuntimeError("no")
        odd = Odd()
        odd.me = odd
        def make_loader():
            return DataLoader(D(odd, odd.size), collate_fn=make_loader)
    """
    assert differing(identity(text), identity(text)) == set()


def test_ranks_of_a_job_are_the_same() -> None:
    text = "make_loader = lambda: DataLoader(D('/d', int(os.environ.get('RANK', 0))))"
    found = [identity(f"os.environ['RANK'] = '{rank}'\n{text}") for rank in (0, 1)]
    assert differing(*found) == set()


SEEDED = """
import types
from support.identity_other import OTHER
from support.identity_same import SAME
from support.identity_scripts import identity
found = identity('''
tags = {"a", "b", "c", "long words", "more"}
class Odd:
    pass
odds = [Odd(), Odd(), object()]
table = {tag: len(tag) for tag in tags}
pairs = frozenset((tag, 1) for tag in tags)
def make_loader():
    return DataLoader(D([tags, table, pairs, odds], 3), collate_fn=lambda x: x in {"a", "b", "c"})
''')
print([entry.digest for entry in found.entries], found.opaque)
"""


def test_hash_seeds_and_addresses_do_not_count() -> None:
    found = set()
    for seed in ("0", "1", "2", "33"):
        command = [sys.executable, "-c", SEEDED]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
    assert "{}" in found.pop()
