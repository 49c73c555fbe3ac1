"""A task's attempts as history: who ran them, what they left behind, what came too late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Tx


class AttemptHistoryRow(NamedTuple):
    """An attempt with the process that ran it (None once its registration is gone)."""

    attempt_id: bytes
    epoch: int
    state: str
    queue_id: bytes
    concurrency_token: int | None
    leased_at: datetime
    lease_expires_at: datetime | None
    started_at: datetime | None
    deadline_at: datetime | None
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    worker_id: bytes | None
    worker_name: str | None


class EvidenceRow(NamedTuple):
    attempt_id: bytes
    received_at: datetime
    outcome: str
    error_code: str | None
    error_message: str | None


_SELECT = """
SELECT a.attempt_id, a.epoch, a.state, a.queue_id, a.concurrency_token, a.leased_at, a.lease_expires_at, a.started_at,
       a.deadline_at, a.ended_at, a.error_code, a.error_message, w.worker_id, w.name
FROM attempts a FORCE INDEX (PRIMARY) LEFT JOIN worker_sessions w ON w.worker_ref = a.worker_ref
"""


def page_attempts(tx: Tx, task_id: bytes, *, after_epoch: int, limit: int) -> list[AttemptHistoryRow]:
    """Read the next attempts of a task, oldest first."""
    sql = _SELECT + "WHERE a.task_id = %s AND a.epoch > %s ORDER BY a.epoch LIMIT %s"
    return [AttemptHistoryRow._make(row) for row in tx.rows(sql, (task_id, after_epoch, limit))]


def select_attempt(tx: Tx, task_id: bytes, epoch: int) -> AttemptHistoryRow | None:
    row = tx.row(_SELECT + "WHERE a.task_id = %s AND a.epoch = %s", (task_id, epoch))
    return None if row is None else AttemptHistoryRow._make(row)


def select_output(tx: Tx, task_id: bytes, epoch: int) -> bytes | None:
    """Read the exact bytes that a successful attempt left behind."""
    sql = "SELECT output FROM attempt_outputs WHERE task_id = %s AND epoch = %s"
    output: bytes | None = tx.value(sql, (task_id, epoch))
    return output


def select_evidence(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, list[EvidenceRow]]:
    """Read the results that came after their attempts had ended, in the order of arrival."""
    found: dict[bytes, list[EvidenceRow]] = {attempt_id: [] for attempt_id in attempt_ids}
    if not attempt_ids:
        return found
    sql = f"""
        SELECT {", ".join(EvidenceRow._fields)} FROM late_evidence WHERE attempt_id IN %s
        ORDER BY received_at, evidence_digest
    """
    for row in map(EvidenceRow._make, tx.rows(sql, (list(attempt_ids),))):
        found[row.attempt_id].append(row)
    return found
