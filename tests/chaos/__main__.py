"""Random schedules for as long as one likes: `make chaos SECS=600 SEED=1 POLICY=block`."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

from chaos.judge import POLICIES
from chaos.schedule import CONSUMERS, Failed, Round

ROUND_SECS = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--secs", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--policy", choices=POLICIES, default=None)
    parser.add_argument("--consumers", type=int, default=CONSUMERS)
    options = parser.parse_args()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    policies = [options.policy] if options.policy else list(POLICIES)
    print(f"seed {seed}, {options.secs:.0f} s", flush=True)
    Path(os.environ["FEEDLINE_DIR"]).mkdir(parents=True, exist_ok=True)
    left = options.secs
    turn = 0
    while left > 0:
        secs = min(left, ROUND_SECS)
        policy = policies[turn % len(policies)]
        with tempfile.TemporaryDirectory() as scratch:
            try:
                one = Round(policy, seed, secs, Path(scratch), consumers=options.consumers)
                print(one.run(), flush=True)
            except Failed as failure:
                print(f"FAILED {failure}", file=sys.stderr)
                return 1
        left -= secs
        turn += 1
        seed += turn % len(policies) == 0
    print("nothing wrong, lost or repeated; no hang; nothing left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
