"""The table: a column for each part, and the ratio of the last two."""

from __future__ import annotations

from feedline._measurement.measurement import Measurement


class Comparison:
    """Rows, as they are added. Of the last two columns, the first is the present state."""

    def __init__(self, *columns: str) -> None:
        self._rows: list[tuple[str, ...]] = [("", *columns, "ratio", "")]

    def __str__(self) -> str:
        """Align the first column left, the others right."""
        rows = self._rows
        widths = [max(len(row[column]) for row in rows if row) for column in range(len(rows[0]))]
        lines = []
        for row in rows:
            cells = [
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=False))
            ]
            lines.append(("  " + "  ".join(cells)).rstrip())
        return "\n".join(lines)

    def blank(self) -> None:
        self._rows.append(())

    def plain(self, title: str, form: str, *values: float) -> None:
        """Without a ratio."""
        self._rows.append((title, *map(form.format, values), "", ""))

    def gain(self, title: str, *values: float) -> None:
        """A row in which more is better."""
        cells = (f"{value:,.{_digits(value)}f}" for value in values)
        self._rows.append((title, *cells, times(values[-1] / values[-2]), ""))

    def cost(self, title: str, form: str, *values: float) -> None:
        """A row in which less is better; left out if the kernel doesn't tell."""
        *_, before, after = values
        if not (before and after):
            return
        ratio, word = (before / after, "less") if after <= before else (after / before, "more")
        self._rows.append((title, *map(form.format, values), times(ratio), word))

    def costs(self, *parts: Measurement) -> None:
        """Rows for CPU time, memory and processes."""
        cpu = (part.cpu_secs_per_1000 for part in parts)
        self.cost("CPU-seconds per 1,000 samples", "{:.4g}", *cpu)
        self.plain("cores busy", "{:.1f}", *(part.cores for part in parts))
        memory = (part.memory_bytes / 1e6 for part in parts)
        self.cost("memory of all processes, MB", "{:,.0f}", *memory)
        self.cost("processes", "{:.0f}", *(part.processes for part in parts))


def times(ratio: float) -> str:
    """`2.3x`, `0.47x`."""
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 1 else 3
