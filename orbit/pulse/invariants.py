"""Checks that tasks, attempts, keys, counters, records and lanes agree; run after every test, offered to operators."""

from __future__ import annotations

from dataclasses import dataclass

from orbit.store.sql.invariants import CHECKS, select_violations
from orbit.store.transaction import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that should be impossible: the invariant's name and where it doesn't hold."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


def check_invariants(tx: Tx, application_id: bytes | None = None) -> list[Violation]:
    """Return what doesn't hold, at most 20 places an invariant; empty for a sound database.

    Reads only, and each invariant in one statement: a busy database gives no false alarm. `application_id` limits the
    checks to one application. The cost grows with the number of tasks: seconds at a million of them.
    """
    return [
        Violation(name=check.name, detail=detail)
        for check in CHECKS
        for detail in select_violations(tx, check, application_id)
    ]


def invariant_names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run."""
    return tuple(check.name for check in CHECKS)
