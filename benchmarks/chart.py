"""Draws the README's chart from a run's file: no number in it comes from anywhere else.

    python -m benchmarks.chart benchmarks/runs/FILE.json docs/jobs.svg

Two groups of bars: four JPEG jobs with a DataLoader each and on one feed, and ready-made batches to
four consumers. A group that the run didn't measure is left out. The picture follows the reader's
light or dark scheme and needs no font but the system's.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from . import jpeg, trial
from .jpeg import Jobs
from .trial import Trial

_WIDTH, _MARGIN = 760, 24
_BARS_FROM, _LONGEST = 212, 430
_THICK, _THIN = 20, 12

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .small { font-size: 11px; fill: #57606a }
.ground { fill: #ffffff; stroke: #d0d7de } .ours { fill: #0969da } .theirs { fill: #afb8c1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  .ground { fill: #0d1117; stroke: #30363d } .ours { fill: #4493f8 } .theirs { fill: #59626d }
}"""


@dataclass(frozen=True)
class Row:
    """One label and its bars; `ours` gets the colour."""

    label: str
    values: list[float]
    note: str = ""
    ours: bool = False

    @property
    def thickness(self) -> int:
        return _THIN if len(self.values) > 1 else _THICK

    @property
    def height(self) -> int:
        return len(self.values) * (self.thickness + 2) + 10


@dataclass(frozen=True)
class Group:
    """Bars on one scale, under a title."""

    title: str
    form: str
    rows: list[Row]

    @property
    def height(self) -> int:
        return 26 + sum(row.height for row in self.rows) + 14


def groups_of(document: dict[str, Any]) -> list[Group]:
    """What there is to draw in a run."""
    jobs = [Jobs(**{**one, "samples_per_sec": _numbers(one)}) for one in document["jpeg"]]
    known = {one.name for one in fields(Trial)}
    trials = [Trial(**{k: v for k, v in one.items() if k in known}) for one in document["fanout"]]
    return [group for group in (_jobs(jobs), _fan_out(trials)) if group.rows]


def _numbers(one: dict[str, Any]) -> tuple[float, ...]:
    return tuple(one.get("samples_per_sec", ()))


def _jobs(results: list[Jobs]) -> Group:
    rows = []
    gain = jpeg.slowest_job_ratio(results)
    for setting in (jpeg.EACH, jpeg.SHARED):
        rounds = [sorted(one.samples_per_sec) for one in jpeg.speed(results, setting).values()]
        if rounds:
            ours = setting == jpeg.SHARED
            note = f"the slowest job: {gain:.1f}×" if ours and gain is not None else ""
            # By rank, from the slowest to the fastest: by number, medians would hide the spread.
            values = [statistics.median(rank) for rank in zip(*rounds, strict=True)]
            rows.append(Row(setting, values, note, ours))
    count = max((len(row.values) for row in rows), default=0)
    return Group(f"{count} jobs that load JPEGs: samples/s of each job", "{:,.0f}", rows)


def _fan_out(trials: list[Trial]) -> Group:
    rows = []
    for contestant, label in (
        ("memcpy", "one memcpy, the limit"),
        ("feedline", "one feed"),
        ("torch.multiprocessing", "torch.multiprocessing"),
        ("tensorsocket", "tensorsocket"),
    ):
        # A peer that is measured with one consumer only is shown with one, and the label says so.
        for consumers, note in ((4, ""), (1, "1 consumer")):
            rate = trial.median(
                trial.chosen(trials, contestant, consumers, "take"), lambda t: t.gb_per_sec
            )
            if rate is not None:
                rows.append(Row(label, [rate], note, contestant == "feedline"))
                break
    return Group("Ready-made batches: GB/s to each of 4 consumers", "{:.2f}", rows)


def draw(groups: list[Group], caption: str) -> str:
    """One SVG document."""
    height = _MARGIN + sum(group.height for group in groups) + 18
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(_in_words(groups))}</title>',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="ground" x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="6"/>',
    ]
    top = _MARGIN
    for group in groups:
        parts += _group(group, top)
        top += group.height
    parts += [_text(_MARGIN, height - 14, caption, "small"), "</svg>"]
    return "\n".join(parts) + "\n"


def _group(group: Group, top: int) -> list[str]:
    parts = [_text(_MARGIN, top + 10, group.title, "title")]
    longest = max(max(row.values) for row in group.rows)
    top += 26
    for row in group.rows:
        middle = top + (row.height - 10) / 2 + 4
        # A note has a line of its own under the label where there is room for it.
        beside = len(row.values) == 1 and row.note
        label = f"{row.label} ({row.note})" if beside else row.label
        stacked = bool(row.note) and not beside
        parts.append(_text(_MARGIN, middle - 8 * stacked, label))
        if stacked:
            parts.append(_text(_MARGIN, middle + 9, row.note, "small"))
        for value in row.values:
            length = max(1.0, _LONGEST * value / longest)
            kind = "ours" if row.ours else "theirs"
            parts.append(
                f'<rect class="{kind}" x="{_BARS_FROM}" y="{top}" width="{length:.1f}" '
                f'height="{row.thickness}" rx="2"/>'
            )
            number = group.form.format(value)
            size = "small" if row.thickness == _THIN else ""
            middle = top + row.thickness / 2 + 4
            parts.append(_text(_BARS_FROM + length + 8, middle, number, size))
            top += row.thickness + 2
        top += 10
    return parts


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _in_words(groups: list[Group]) -> str:
    """Say the chart to those who can't see it."""
    said = []
    for group in groups:
        rows = (
            f"{row.label}{f' ({row.note})' if row.note else ''} "
            + ", ".join(map(group.form.format, row.values))
            for row in group.rows
        )
        said.append(f"{group.title}: {'; '.join(rows)}")
    return ". ".join(said)


def caption_of(document: dict[str, Any]) -> str:
    """Where, when, and by which command."""
    machine, quick = document["machine"], document["settings"]["quick"]
    return (
        f"{machine['cpus']} CPUs ({machine['cpu']}), Linux {machine['kernel'].split('-')[0]}, "
        f"torch {machine['torch']}, {document['date'][:10]}, "
        f"medians of one run of: make bench{' ARGS=--quick' * quick}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__)
    parser.add_argument("run", type=Path, help="a file of benchmarks/runs/")
    parser.add_argument("out", type=Path, help="the SVG to write")
    typed = parser.parse_args()
    document = json.loads(typed.run.read_text())
    groups = groups_of(document)
    if not groups:
        parser.error(f"{typed.run} has no jpeg and no fan-out trial that went well")
    typed.out.parent.mkdir(parents=True, exist_ok=True)
    typed.out.write_text(draw(groups, caption_of(document)))


if __name__ == "__main__":
    main()
