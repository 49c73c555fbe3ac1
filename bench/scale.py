"""How much of everything a run does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of a run: counts of tasks, seconds, and how often each comparison is repeated."""

    name: str
    rounds: int
    tasks: int
    single_tasks: int
    keyed_tasks: int
    hot_tasks: int
    submit_seconds: float
    batched_tasks: int
    paced_tasks: int
    backlog: int
    blocked: int
    delayed: int
    finished: int
    claims: int
    idle_seconds: float
    idle_workers: int

    def with_rounds(self, rounds: int) -> Scale:
        return replace(self, rounds=rounds)


FULL: Final = Scale(
    name="full",
    rounds=3,
    tasks=5_000,
    single_tasks=1_000,
    keyed_tasks=2_000,
    hot_tasks=300,
    submit_seconds=2.0,
    batched_tasks=5_120,
    paced_tasks=200,
    backlog=100_000,
    blocked=100_000,
    delayed=100_000,
    finished=1_000_000,
    claims=40,
    idle_seconds=20.0,
    idle_workers=50,
)
# Shows that everything runs; its figures mean little.
QUICK: Final = Scale(
    name="quick",
    rounds=1,
    tasks=1_000,
    single_tasks=100,
    keyed_tasks=300,
    hot_tasks=50,
    submit_seconds=0.5,
    batched_tasks=1_024,
    paced_tasks=40,
    backlog=5_000,
    blocked=5_000,
    delayed=5_000,
    finished=10_000,
    claims=10,
    idle_seconds=3.0,
    idle_workers=50,
)
