"""Whole scripts: jobs that differ in what doesn't matter share a loader, others are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedline._identity import Identity
from support.identity_scripts import differing, maybe_differing
from support.programs import programs

SAME, OTHER = programs("same"), programs("other")


@pytest.mark.parametrize("how", SAME)
def test_scripts_that_load_the_same(how: str, tmp_path: Path) -> None:
    program = SAME[how]
    first, second = (program.identity(tmp_path, job) for job in ("first", "second"))
    assert differing(first, second) == set()
    assert "warned" not in program.how or program.how["warned"] == _may_differ(first, second)
    assert ", ".join(first.opaque) == program.how.get("said", "")
    if "other" in program.how:
        assert differing(first, program.identity(tmp_path, "other"))


@pytest.mark.parametrize("how", OTHER)
def test_scripts_that_load_something_else(how: str, tmp_path: Path) -> None:
    program = OTHER[how]
    first, again, second = (program.identity(tmp_path, job) for job in ("first", "first", "second"))
    assert differing(first, again) == set()
    assert ", ".join(first.opaque) == program.how.get("said", "")
    if "warned" in program.how:
        assert program.how["warned"] == _may_differ(first, second)
    else:
        assert "said" in program.how or differing(first, second)


def _may_differ(first: Identity, second: Identity) -> str:
    return ", ".join(sorted(maybe_differing(first, second)))
