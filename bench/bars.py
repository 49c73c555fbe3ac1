"""What must hold, as ratios within one run (and a few bounds of the specification), computed from a run's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from bench.measures import backlog, claim, drain, idle, keyed, latency, statements, submit
from bench.results import Run

Figure = Callable[[Run], float | None]


class Bar(NamedTuple):
    """`text` says what is compared; `figure` gives the value, None where it wasn't measured."""

    text: str
    figure: Figure
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def is_met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    @property
    def bound(self) -> str:
        word, value = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        return f"{word} {value:,g} {self.unit}"


def _value(measure: str, row: str, column: str) -> Figure:
    return lambda run: run.value(measure, row, column)


def _ratio(measure: str, row: str, base: str, column: str) -> Figure:
    def figure(run: Run) -> float | None:
        value, divisor = run.value(measure, row, column), run.value(measure, base, column)
        return value / divisor if value is not None and divisor else None

    return figure


def _largest_difference(run: Run) -> float | None:
    found = [measure for measure in run.measures if measure.name == statements.NAME]
    if not found:
        return None
    return max(abs(row.values["group"] - row.values["one"]) for row in found[0].rows)


BARS: Final = (
    Bar(
        "drain: group commit against groups of one", _ratio(drain.NAME, drain.ONE, drain.SINGLE, "rate"), 6.0
    ),
    Bar("drain: 2 + 2 against 1 + 1, one application", _ratio(drain.NAME, drain.TWO, drain.ONE, "rate"), 0.9),
    Bar(
        "drain: two applications on 2 + 2 against one on 1 + 1",
        _ratio(drain.NAME, drain.APPLICATIONS, drain.ONE, "rate"),
        1.1,
    ),
    Bar("one hot key", _value(keyed.NAME, keyed.HOT, "rate"), 100, unit="tasks/s"),
    Bar(
        "drain: a deep backlog against a shallow one",
        _ratio(backlog.NAME, backlog.DEEP, backlog.SHALLOW, "rate"),
        0.9,
    ),
    Bar("submit: 16 callers, one by one", _value(submit.NAME, submit.SIXTEEN, "rate"), 1_000, unit="tasks/s"),
    Bar(
        "submit: group commit against groups of one, 16 callers",
        _ratio(submit.NAME, submit.SIXTEEN, submit.SINGLE, "rate"),
        1.5,
    ),
    Bar("latency at light load: p50", _value(latency.NAME, latency.PACED, "p50"), at_most=10, unit="ms"),
    Bar("latency at light load: p99", _value(latency.NAME, latency.PACED, "p99"), at_most=40, unit="ms"),
    *(
        Bar(
            f"claim beside tasks that are {row}, against an empty queue in the same tables",
            _ratio(claim.NAME, row, claim.BESIDE_KEYED if row == claim.BLOCKED else claim.BESIDE, "ms"),
            at_most=1.3,
        )
        for row in (claim.BLOCKED, claim.FINISHED, claim.DELAYED)
    ),
    *(
        Bar(
            f"claim from an empty queue in full tables, against empty tables, {kind}",
            _ratio(claim.NAME, full, empty, "ms"),
            at_most=1.3,
        )
        for kind, full, empty in (
            ("keyless", claim.BESIDE, claim.EMPTY),
            ("keyed", claim.BESIDE_KEYED, claim.EMPTY_KEYED),
        )
    ),
    Bar("idle: all daemons and the workers' process", idle.cpu_in_all, at_most=5, unit="% of a core"),
    Bar("idle: the largest daemon", idle.largest_daemon, at_most=120, unit="MB"),
    Bar("statements: group of 64 against group of 1", _largest_difference, at_most=2, unit="more or less"),
)
