"""CPU of each of Orbit's processes per job, beside what the comparison itself reports (one JSON line a measurement)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.counters import difference
from bench.cpu import cpu_of


class Costs:
    """Follows one measurement after the other: `begin`, `note` as jobs end, `close`."""

    def __init__(self, pids: Mapping[str, int], path: Path) -> None:
        self._pids = pids
        self._path = path
        self._began: dict[str, float] = {}
        self._before = 0
        self._latest: tuple[dict[str, float], int] | None = None

    def begin(self, done: int) -> None:
        """Begin with so many jobs done before."""
        self.close()
        self._began, self._before, self._latest = cpu_of(self._pids), done, None

    def note(self, done: int) -> None:
        """Remember the CPU used by now; the last note counts."""
        self._latest = (cpu_of(self._pids), done)

    def close(self) -> None:
        """Write what the measurement cost, unless no job ended in it."""
        if self._latest is None or not self._began:
            return
        used, done = self._latest
        jobs = done - self._before
        self._latest = None
        if jobs > 0:
            spent = difference(used, self._began)
            line = {"jobs": jobs, **{f"{name}_us": round(s * 1e6 / jobs, 1) for name, s in spent.items()}}
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
