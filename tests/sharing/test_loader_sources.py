"""A loader whose source was changed: in its script, in a module, while a job runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from feedline._identity import differences, identity_of
from support.identity_scripts import differing, identity, write_module


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


def test_a_module_that_was_edited_and_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a notebook's autoreload does it, in one process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write_module(tmp_path, "reloaded_fl", "def helper(x):\n    return x + 1\n")
    text = "import reloaded_fl\nmake_loader = lambda: [reloaded_fl.helper(3)]"
    first = identity(text)
    for body, differs in (
        ("# above\n\ndef helper(x):\n    return x + 1  # beside\n", set()),
        ("def helper(x):\n    return x + 22\n", {"source of reloaded_fl.helper"}),
    ):
        (tmp_path / "reloaded_fl.py").write_text(body)
        # The server imports the module as it is now, whether this process does or not.
        assert differing(first, identity(text)) == differs
        importlib.reload(sys.modules["reloaded_fl"])
        assert differing(first, identity(text)) == differs


CHANGES = """
import pathlib
from support.identity_scripts import differing
from feedline._identity import identity_of
def helper(x):
    return x + 1
def make_loader():
    return [helper(3), (lambda x: x)(4)]
before = identity_of(make_loader)
file = pathlib.Path(__file__)
text = file.read_text()
for now in (text + "# a comment", "# another\\n" + text, text.replace("x " + "+ 1", "x + 2")):
    file.write_text(now)
    print(differing(before, identity_of(make_loader)))
"""


def test_a_script_that_is_edited_while_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHANGES)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["set()", "set()", "{'source of helper'}"], done.stderr


def test_a_script_and_who_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import dataclasses, enum
        class Kind(enum.Enum):
            A = 1
        @dataclasses.dataclass
        class Sample:
            label: int
        class Numbers:
            def __init__(self, size):
                self.size, self.samples, self.kind = size, [Sample(1)], Kind.A
            def __iter__(self):
                return iter(range(self.size + len(self.samples) + self.kind.value))
        def double(x):
            return x * 2
        numbers = Numbers(3)
        kinds = [Kind, Numbers, Sample(2)]
        def make_loader(kinds=kinds):
            return [double(one) for one in numbers], kinds
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    write_module(tmp_path, "train_fl", text)
    imported = identity_of(importlib.import_module("train_fl").make_loader)
    assert differing(identity(text, begin=""), imported) == set()


def test_a_source_that_has_another_name_here() -> None:
    text = "def {0}():\n    return [1]\nmake_loader = lambda: {0}()"
    told, _ = differences(
        identity(text.format("new")).entries, identity(text.format("old")).entries, 7
    )
    assert any("none of that name here" in one for one in told)


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
