"""What a run found, as records that JSON keeps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

Values = dict[str, float]
_NEVER: Final = frozenset({"deadlocks"})


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table: the value's name, what stands above it, and how many decimals are shown."""

    name: str
    title: str
    decimals: int = 0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of a measurement: what each round found."""

    name: str
    rounds: list[Values]

    @property
    def values(self) -> Values:
        """The median over the rounds of each value; of what should never happen, the worst."""
        names = dict.fromkeys(name for found in self.rounds for name in found)
        values = {name: [found[name] for found in self.rounds if name in found] for name in names}
        return {
            name: max(seen) if name in _NEVER else statistics.median(seen) for name, seen in values.items()
        }


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement as a table; `note` says how to read it."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: list[Row]

    def value(self, row: str, column: str) -> float | None:
        """Return a median, None where it wasn't measured."""
        for one in self.rows:
            if one.name == row:
                return one.values.get(column)
        return None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: where and with what it was measured, then the measurements."""

    facts: dict[str, str]
    measures: list[Measure]

    def value(self, measure: str, row: str, column: str) -> float | None:
        for one in self.measures:
            if one.name == measure:
                return one.value(row, column)
        return None


def rows_of(found: Mapping[str, Sequence[Values]]) -> list[Row]:
    """Return rows from the rounds of each variant."""
    return [Row(name=name, rounds=list(rounds)) for name, rounds in found.items()]


def write_run(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))


def read_run(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)
