"""What the comparison with other systems found (its results.json), and the ratios that must hold in it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

QUIET_CORES: Final = 0.5
ORBIT: Final = "orbit"
Rounds = Mapping[str, list[Mapping[str, Any]]]


class PeerRun(msgspec.Struct, frozen=True, kw_only=True):
    """The part of results.json that is used here: rounds of each test by system."""

    date: str
    machine: str
    versions: list[str]
    peers: dict[str, dict[str, Any]]

    def median(self, peer: str, test: str, column: str = "rate") -> float | None:
        """Return the median of the quiet rounds, of all where none was quiet, None without any."""
        rounds = [found for found in self.peers.get(peer, {}).get(test, []) if column in found]
        quiet = [found for found in rounds if found.get("other_cores", 0.0) < QUIET_CORES] or rounds
        return statistics.median(found[column] for found in quiet) if quiet else None


class PeerBar(NamedTuple):
    """A test of Orbit's against the same test of another system, or against another test of its own."""

    text: str
    test: str
    peer: str
    other_test: str
    at_least: float


BARS: Final = (
    PeerBar("drain, 1 worker (C1), against oban", "C1", "oban", "C1", 0.6),
    PeerBar("50 keys (E), against procrastinate", "E", "procrastinate", "E", 2.0),
    PeerBar("bulk (B), against procrastinate", "B", "procrastinate", "B", 0.5),
    PeerBar("100,000 waiting (F), against 5,000 (C1)", "F", ORBIT, "C1", 0.9),
)
_COLUMNS: Final = (
    ("A1", "rate", "A, 1 caller"),
    ("A", "rate", "A, 16 callers"),
    ("B", "rate", "B, bulk"),
    ("C1", "rate", "C, 1 worker"),
    ("C2", "rate", "C, 2 workers"),
    ("D", "p50", "D p50 ms"),
    ("D", "p99", "D p99 ms"),
    ("E", "rate", "E, 50 keys"),
    ("F", "rate", "F, 100,000 waiting"),
    ("C1", "worker_us", "C1 worker µs"),
    ("C1", "server_us", "C1 server µs"),
)


def read_peers(path: Path) -> PeerRun:
    return msgspec.json.decode(path.read_bytes(), type=PeerRun)


def render_peer_bars(run: PeerRun) -> str:
    """Return a table of the ratios that must hold."""
    lines = ["| must hold | bound | measured | |", "|---|---|---:|---|"]
    for bar in BARS:
        mine, theirs = run.median(ORBIT, bar.test), run.median(bar.peer, bar.other_test)
        if mine is None or not theirs:
            lines.append(f"| {bar.text} | ≥ {bar.at_least:g} x | - | not measured |")
            continue
        verdict = "met" if mine / theirs >= bar.at_least else "**missed**"
        lines.append(f"| {bar.text} | ≥ {bar.at_least:g} x | {mine / theirs:.2f} | {verdict} |")
    return "\n".join(lines)


def render_peer_table(run: PeerRun) -> str:
    """Return every system's medians: tasks a second, milliseconds, CPU microseconds a task."""
    lines = [
        "| | " + " | ".join(title for _, _, title in _COLUMNS) + " |",
        "|---|" + "---:|" * len(_COLUMNS),
    ]
    for peer in run.peers:
        cells = [_cell(run.median(peer, test, column)) for test, column, _ in _COLUMNS]
        lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
