"""What a script sets in the modules that it imported goes to the server with ``make_loader``."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from feedline import _module_state
from feedline._identity import State, identity_of
from feedline._pickling import pack, unpack
from support.identity_scripts import run
from support.share_scripts import run_script

pytestmark = pytest.mark.timeout(120, method="thread")

MODULE = """
import numpy as np

OPTIONS = {"first": 0, "unused": 0}
COUNT = 4
ABSENT = object()
LOCK = __import__("threading").Lock()
HANDLE = None

class Samples:
    STEP = 1
    def batch(self):
        return np.arange(COUNT) * self.STEP + OPTIONS["first"] + shift()

def configure(**options):
    OPTIONS.update(options)

def shift(by=ABSENT):
    with LOCK:
        return 0 if by is ABSENT else 10_000

def make_loader():
    return [Samples().batch()]
"""

SETS = {
    "nothing": ("", [0, 1, 2, 3]),
    "an entry": ("configure(first=5)", [5, 6, 7, 8]),
    "a global": ("settings_fl.COUNT = 2", [0, 1]),
    "a class's attribute": ("settings_fl.Samples.STEP = 3", [0, 3, 6, 9]),
    "a function": ("settings_fl.shift = lambda: 7", [7, 8, 9, 10]),
    "a method": ("settings_fl.Samples.batch = lambda self: [len(settings_fl.OPTIONS)]", [2]),
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "settings_fl.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "settings_fl", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def reached(text: str) -> tuple[Any, State]:
    """A script's ``make_loader``, and what it reads of modules."""
    text = f"import settings_fl\nfrom settings_fl import configure, make_loader\n{text}"
    make_loader = run(text, begin="")["make_loader"]
    return make_loader, identity_of(make_loader).module_state


@pytest.mark.parametrize("what", SETS)
def test_the_server_has_what_the_script_has_set(what: str, module: Path) -> None:
    setting, batch = SETS[what]
    make_loader, state = reached(setting)
    (module / "payload").write_bytes(pack({"": make_loader}, state))
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent("""
            import sys
            from feedline._pickling import unpack
            [make_loader] = unpack(open("payload", "rb").read()).values()
            print([int(one) for batch in make_loader() for one in batch])
        """)],
        cwd=module, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.stdout.strip() == str(batch), found.stderr


def test_nothing_but_what_the_loader_reads(module: Path) -> None:
    _, state = reached("")
    names = {path for _, path in state}
    assert names == {"OPTIONS", "COUNT", "ABSENT", "Samples.STEP"}


def test_what_is_the_same_stays(module: Path) -> None:
    make_loader, state = reached("")
    import settings_fl  # type: ignore[import-not-found]

    before = dict(vars(settings_fl))
    unpack(pack({"": make_loader}, state))
    assert {name for name, one in vars(settings_fl).items() if one is not before[name]} == set()
    _module_state.put({("settings_fl", "COUNT"): 5, ("settings_fl", "Nowhere.at_all"): 1})
    assert settings_fl.COUNT == 5


def test_what_cannot_be_sent_is_said(module: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_loader, state = reached("settings_fl.OPTIONS['first'] = 9")
    state["settings_fl", "HANDLE"] = (one for one in [1])
    with caplog.at_level(logging.WARNING, logger="feedline"):
        payload = pack({"": make_loader}, state)
    assert "settings_fl.HANDLE (cannot pickle 'generator' object)" in caplog.text
    assert unpack(payload)[""]()[0][0] == 9


@pytest.mark.processes
@pytest.mark.usefixtures("servers_leave")
def test_a_job_that_sets_an_option_of_a_module(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        import json, feedline, settings_fl
        settings_fl.configure(first=20)
        feed = feedline.share(settings_fl.make_loader, "set", epochs=1, linger_secs=0.2)
        print(json.dumps([int(one) for batch in feed for one in batch]))
    """
    monkeypatch.chdir(module)
    assert run_script(module / "train.py", script) == [[20, 21, 22, 23]]
