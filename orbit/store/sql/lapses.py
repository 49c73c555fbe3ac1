"""What recovery looks for: ended leases and passed deadlines, on their own small indexes."""

from __future__ import annotations

from typing import NamedTuple

from orbit.store.transaction import Tx


class LapsedRow(NamedTuple):
    application_id: bytes
    id: bytes


_LEASES = """
SELECT application_id, attempt_id FROM attempts FORCE INDEX (ix_attempts_lease)
WHERE lease_expires_at <= UTC_TIMESTAMP(6) ORDER BY lease_expires_at LIMIT %s
"""
_DEADLINES = """
SELECT application_id, task_id FROM tasks FORCE INDEX (ix_tasks_deadline)
WHERE unstarted_deadline_at <= UTC_TIMESTAMP(6) ORDER BY unstarted_deadline_at LIMIT %s
"""


def select_lapsed_leases(tx: Tx, limit: int) -> list[LapsedRow]:
    """Return attempts whose lease has ended, the oldest first; takes no locks."""
    return [LapsedRow._make(row) for row in tx.rows(_LEASES, (limit,))]


def select_passed_deadlines(tx: Tx, limit: int) -> list[LapsedRow]:
    """Return unstarted tasks whose start or total deadline has passed, the oldest first; takes no locks."""
    return [LapsedRow._make(row) for row in tx.rows(_DEADLINES, (limit,))]
