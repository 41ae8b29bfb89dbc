"""What a soak says at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """A test that failed, or, without a test, something else that went wrong."""

    what: str
    when: str = ""

    @property
    def file(self) -> str:
        return self.what.partition("::")[0] if "::" in self.what else ""

    def __str__(self) -> str:
        # A failure of the test itself needs no word.
        return self.what if self.when in ("", "call") else f"{self.what} ({self.when})"


@dataclass(frozen=True)
class Round:
    number: int
    seed: int
    failures: Sequence[Failure] = field(default_factory=tuple)


def exit_code(rounds: Sequence[Round]) -> int:
    return int(any(one.failures for one in rounds))


def summary(rounds: Sequence[Round]) -> str:
    """List every failure with its round and seed, and how often each test failed."""
    count = sum(len(one.failures) for one in rounds)
    failed = _plural(count, "failure") if count else "no failures"
    lines = [f"soak: {_plural(len(rounds), 'round')}, {failed}"]
    for one in rounds:
        lines += [f"  round {one.number}, seed {one.seed}: {failure}" for failure in one.failures]
        if files := sorted({failure.file for failure in one.failures} - {""}):
            again = f"make soak ROUNDS=1 SEED={one.seed}"
            lines.append(f"    the round again: {again}")
            lines.append(f"    these alone:     {again} ARGS='{' '.join(files)}'")
    in_rounds = Counter(what for one in rounds for what in {f.what for f in one.failures})
    often = [(what, times) for what, times in in_rounds.most_common() if times > 1]
    lines += [f"  in {times} of {len(rounds)} rounds: {what}" for what, times in often]
    return "\n".join(lines)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
