"""Runs as Markdown: printed, or put into a document between its markers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.bars import BARS
from bench.results import Column, Measure, Row, Run, Values

# A measurement during which everything else on the machine used more than this many cores is not quiet.
QUIET_CORES: Final = 0.5
_BLOCK: Final = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def render(run: Run) -> str:
    """Return the whole run: facts, bounds, then a section for each measurement."""
    parts = [render_facts(run), render_bars(run)]
    parts += [f"## {measure.title}\n\n{measure.note}\n\n{render_table(measure)}" for measure in run.measures]
    return "\n\n".join(parts) + "\n"


def render_facts(run: Run) -> str:
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in run.facts.items())


def render_bars(run: Run) -> str:
    """Return a table of what must hold, what was measured, and whether it does."""
    lines = ["| must hold | bound | measured | |", "|---|---|---:|---|"]
    for bar in BARS:
        value = bar.figure(run)
        if value is None:
            lines.append(f"| {bar.text} | {bar.bound} | - | not measured |")
        else:
            verdict = "met" if bar.is_met(value) else "**missed**"
            lines.append(f"| {bar.text} | {bar.bound} | {_number(value, 2)} | {verdict} |")
    return "\n".join(lines)


def render_table(measure: Measure) -> str:
    """Return a measurement's medians, with the least and the most of the first column where there were rounds."""
    columns = [c for c in measure.columns if any(c.name in row.values for row in measure.rows)]
    lines = [
        "| | " + " | ".join(column.title for column in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    lines += [_line(row, columns) for row in measure.rows]
    return "\n".join(lines)


def fill_document(path: Path, run: Run | None, extra: Mapping[str, str]) -> None:
    """Replace what stands between `<!-- bench:NAME -->` and `<!-- /bench -->`.

    NAME is a measurement of the run, `facts`, `bars`, or a name of `extra`; blocks without figures stay as they are.
    """
    parts = dict(extra)
    if run is not None:
        parts |= {"facts": render_facts(run), "bars": render_bars(run)}
        parts |= {measure.name: render_table(measure) for measure in run.measures}

    def replace(found: re.Match[str]) -> str:
        text = parts.get(found[2])
        return found[0] if text is None else f"{found[1]}\n{text}\n\n{found[3]}"

    path.write_text(_BLOCK.sub(replace, path.read_text(encoding="utf-8")), encoding="utf-8")


def _line(row: Row, columns: list[Column]) -> str:
    cells = []
    for column in columns:
        value = row.values.get(column.name)
        cells.append("-" if value is None else _number(value, column.decimals))
    first = columns[0].name
    seen = [values[first] for values in row.rounds if first in values]
    if 1 < len(seen) <= 5 and min(seen) != max(seen):
        cells[0] += f" ({_number(min(seen), columns[0].decimals)}-{_number(max(seen), columns[0].decimals)})"
    noisy = "" if any(map(_is_quiet, row.rounds)) else " *"
    return f"| {row.name}{noisy} | " + " | ".join(cells) + " |"


def _is_quiet(values: Values) -> bool:
    return values.get("others", 0.0) < QUIET_CORES


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"
