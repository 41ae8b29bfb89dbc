"""What a run says: tables for the terminal, and every number in a file under `benchmarks/runs/`."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import face, history, jpeg, loader, machine, memory, trial, watched
from .loader import Loading
from .settings import Settings
from .targets import Results, judge
from .trial import Trial

RUNS = Path(__file__).resolve().parent / "runs"


def table(head: list[str], rows: list[list[str]]) -> str:
    """First column to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(head), "  ".join("─" * width for width in widths), *map(line, rows)])


def render(results: Results) -> str:
    parts = []
    for work, title in (
        ("take", "fan-out, consumers that only take batches"),
        ("read", "fan-out, consumers that read every byte"),
    ):
        trials = [t for t in results.fanout if t.work == work]
        if trials:
            parts.append(f"{title} (64×3×224×224 uint8 and labels)\n{_rates(trials)}")
    if results.tiny:
        parts.append(f"tiny batches (8 int64)\n{_rates(results.tiny)}")
    if results.memory:
        parts.append(f"memory of all processes together\n{_memory(results)}")
    if results.history:
        parts.append(f"a late joiner that reads every byte of an epoch\n{_history(results)}")
    if results.face:
        parts.append(f"a plain for loop over tiny batches (8 int64)\n{_face(results)}")
    if results.watched:
        parts.append(f"fan-out to 4 consumers that somebody watches\n{_watched(results)}")
    if results.loader:
        parts.append(f"torch's DataLoader and feedline's, one job\n{_loader(results)}")
    if results.jpeg:
        parts.append(f"JPEG DataLoader, 2 workers\n{_jpeg(results)}")
    parts.append(_judgement(results))
    parts.extend(results.notes)
    return "\n\n".join(parts)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _rates(trials: list[Trial]) -> str:
    settings = dict.fromkeys((t.consumers, t.contestant, t.work) for t in trials)
    rows, failures = [], []
    for consumers, name, work in sorted(settings, key=lambda key: key[0]):
        good = trial.chosen(trials, name, consumers, work)
        limit = trial.chosen(trials, "memcpy", consumers, work)
        ours = trial.chosen(trials, "feedline", consumers, work)
        errors = [t.error for t in trials if t.contestant == name and t.consumers == consumers]
        failed = [error for error in errors if error]
        label = f"{consumers} × {name}" if name != "memcpy" else f"    {name}, the limit"
        if failed:
            failures.append(f"{label}: failed {len(failed)} of {len(errors)} times: {failed[-1]}")
        rates = [t.batches_per_sec for t in good.values()]
        copy, each = _cpu(good)
        rows.append(
            [
                label,
                _number(trial.median(good), ",.0f" if (trial.median(good) or 0) > 100 else ".1f"),
                f"{min(rates):,.0f}–{max(rates):,.0f}" if rates else "failed",
                _number(trial.median(good, lambda t: t.gb_per_sec), ".2f"),
                _number(trial.ratio(good, limit), ".1%"),
                _number(trial.ratio(ours, good), ".1f"),
                # The limit is one process, and it is the one that copies.
                *([copy, each] if name != "memcpy" else [each, "–"]),
            ]
        )
    head = ["", "batches/s each", "from–to", "GB/s each", "of the limit", "feedline is ×"]
    unit = "CPU/batch" if _are_tiny(trials) else "CPU s/GB"
    head += [f"{unit}: producer", "each consumer"]
    return "\n".join([table(head, rows), *failures])


def _are_tiny(trials: list[Trial]) -> bool:
    return any(0 < t.batch_bytes < 1000 for t in trials)


def _cpu(trials: dict[int, Trial]) -> tuple[str, str]:
    """CPU time of the producer and of a consumer: s/GB, or µs for a batch too small for that."""
    tiny = _are_tiny(list(trials.values()))
    shown = []
    for number in (lambda t: t.producer_cpu_secs_per_gb, lambda t: t.consumer_cpu_secs_per_gb):
        middle = trial.median(trials, number)
        if middle is not None and tiny:
            shown.append(f"{middle / 1e3 * next(iter(trials.values())).batch_bytes:.2f} µs")
        else:
            shown.append(_number(middle, ".4f"))
    return shown[0], shown[1]


def _memory(results: Results) -> str:
    rows = []
    for consumers in dict.fromkeys(m.consumers for m in results.memory):
        good = [m for m in results.memory if m.consumers == consumers and m.error is None]
        if not good:
            error = next(m.error for m in results.memory if m.consumers == consumers)
            rows.append([f"{consumers} consumers", "failed", str(error), "", ""])
            continue
        mb = [
            statistics.median(numbers) / 1e6
            for numbers in (
                [m.pss_bytes for m in good],
                [m.interpreters_pss_bytes for m in good],
                [m.beyond_interpreters() for m in good],
                [m.page_tables_beyond() for m in good],
            )
        ]
        rows.append([f"{consumers} consumers", *(f"{value:,.1f}" for value in mb)])
    added = memory.added_per_consumer(results.memory)
    tables = memory.added_per_consumer(results.memory, memory.Memory.page_tables_beyond)
    if added is not None and tables is not None:
        values = [f"{added / 1e6:,.1f}", f"{tables / 1e6:,.1f}"]
        rows.append(["each added consumer", "", "", *values])
    head = ["MB", "PSS", "plain interpreters", "beyond them", "page tables beyond"]
    return table(head, rows)


def _face(results: Results) -> str:
    rows = [
        [
            name,
            _number(face.micros(results.face, name), ".2f"),
            _number(face.beyond_bare(results.face, name), "+.2f"),
        ]
        for name in dict.fromkeys(loop.face for loop in results.face)
    ]
    return table(["µs a batch", "", "beyond bare"], rows)


def _history(results: Results) -> str:
    rows = []
    for place in dict.fromkeys(r.place for r in results.history):
        failed = [r.error for r in results.history if r.place == place and r.error]
        rows.append(
            [
                place if place.startswith("ring") else f"history, {place}",
                _number(history.rate(results.history, place), ".2f") if not failed else failed[-1],
                _number(history.share(results.history, place), ".1%"),
            ]
        )
    return table(["", "GB/s", "of the ring's"], rows)


def _watched(results: Results) -> str:
    rows, failures = [], []
    for name in dict.fromkeys(t.contestant for t in results.watched):
        good = watched.trials_by(results.watched, name)
        errors = [t.error for t in results.watched if t.contestant == name and t.error]
        failures += [f"{name}: failed {len(errors)} times: {errors[-1]}"] if errors else []
        rates = [t.batches_per_sec for t in good.values()]
        rows.append(
            [
                f"by {name}",
                _number(trial.median(good), ",.1f"),
                f"{min(rates):,.0f}–{max(rates):,.0f}" if rates else "failed",
                _number(watched.share(results.watched, name), ".1%"),
                _number(trial.median(good, watched.cpu_secs_per_gb), ".4f"),
                _number(watched.share(results.watched, name, watched.cpu_secs_per_gb), ".1%"),
                _number(trial.median(good, lambda t: t.watchers_load), ".2%"),
            ]
        )
    head = ["watched", "batches/s each", "from–to", "of unwatched"]
    head += ["CPU s/GB", "of unwatched", "watchers, of a CPU"]
    return "\n".join([table(head, rows), *failures])


def _loader(results: Results) -> str:
    numbers: list[tuple[str, str, Callable[[Loading], float | None]]] = [
        ("samples/s", ",.0f", lambda one: one.samples_per_sec),
        ("CPU s/GB", ".3f", lambda one: one.cpu_secs_per_gb),
        ("seconds", ".2f", lambda one: one.first_batch_secs),
    ]
    rows = []
    for work in dict.fromkeys(one.work for one in results.loader):
        for unit, form, number in numbers:
            theirs, ours = (
                loader.median(results.loader, work, name, number)
                for name in (loader.TORCH, loader.OURS)
            )
            if theirs is None and ours is None:
                continue
            quotient = loader.ratio(results.loader, work, number)
            rows.append(
                [
                    f"{work}: {unit}",
                    _number(theirs, form),
                    _number(ours, form),
                    _number(quotient, ".3f"),
                ]
            )
    failures = [f"{one.work}, {one.loader}: {one.error}" for one in results.loader if one.error]
    head = ["", loader.TORCH, loader.OURS, "feedline / DataLoader"]
    return "\n".join([table(head, rows), *failures])


def _jpeg(results: Results) -> str:
    rows = []
    for setting in dict.fromkeys(j.setting for j in results.jpeg):
        good = jpeg.speed(results.jpeg, setting)
        if not good:
            error = next(j.error for j in results.jpeg if j.setting == setting)
            rows.append([setting, "failed", str(error), ""])
            continue
        rates = [j.samples_per_sec for j in good.values()]
        rows.append(
            [
                setting,
                str(len(rates[0])),
                f"{statistics.median(statistics.mean(r) for r in rates):,.0f}",
                f"{statistics.median(min(r) for r in rates):,.0f}",
            ]
        )
    return table(["", "jobs", "samples/s per job", "the slowest job"], rows)


def _judgement(results: Results) -> str:
    rows = []
    for target in judge(results):
        reached = "not measured" if target.reached is None else target.show(target.reached)
        verdict = {True: "yes", False: "NO", None: ""}[target.met]
        rows.append([target.what, target.to_reach(), reached, verdict])
    return table(["targets", "to reach", "reached", "ok?"], rows)


def write(results: Results, settings: Settings, out: Path | None) -> Path:
    """Keep every trial, not just medians. Without `out`: a dated file that replaces no other."""
    described = machine.describe()
    now = datetime.datetime.now(datetime.UTC)
    document: dict[str, Any] = {
        "format": 1,
        "date": now.isoformat(timespec="seconds"),
        "machine": described,
        "settings": settings.as_json(),
        "targets": [target.as_json() for target in judge(results)],
        "notes": results.notes,
    }
    for name in ("fanout", "tiny", "memory", "history", "face", "watched", "loader", "jpeg"):
        document[name] = [one.as_json() for one in getattr(results, name)]
    if out is None:
        stem = f"{now:%Y-%m-%d}-{machine.short_name(described)}" + ("-quick" * settings.quick)
        out = RUNS / f"{stem}.json"
        again = 2
        while out.exists():
            out = RUNS / f"{stem}-{again}.json"
            again += 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return out
