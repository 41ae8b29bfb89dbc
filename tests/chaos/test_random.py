"""A short slice of the random schedules; `make chaos` runs them for as long as one likes."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from chaos.judge import POLICIES, Policy
from chaos.schedule import Round

SECS = 2.0
CONSUMERS = 3


@pytest.mark.parametrize("policy", POLICIES)
def test_a_schedule_that_is_always_the_same(policy: Policy, tmp_path: Path) -> None:
    print(Round(policy, 1, SECS, tmp_path, consumers=CONSUMERS).run())


def test_a_schedule_that_nobody_has_seen_before(tmp_path: Path) -> None:
    seed = secrets.randbelow(10**6)
    policy = POLICIES[seed % len(POLICIES)]
    print(Round(policy, seed, SECS, tmp_path, consumers=CONSUMERS).run())
