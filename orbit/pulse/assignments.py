"""Assignments: how a session is told of an attempt that it holds, claimed now or sent again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from orbit.domain.durations import ms_left
from orbit.domain.keys import text_of
from orbit.pulse.commands import Assignment
from orbit.store.sql.attempts import AttemptLease, LeaseRow
from orbit.store.sql.tasks import ClaimRow, select_claimed
from orbit.store.transaction import Tx


def assignment_of(
    task: ClaimRow,
    *,
    session_id: bytes,
    attempt_id: bytes,
    epoch: int,
    token: int | None,
    expires_at: datetime,
    now: datetime,
) -> Assignment:
    """Describe a claimed attempt to its session."""
    return Assignment(
        session_id=session_id,
        attempt_id=attempt_id,
        task_id=task.task_id,
        queue_id=task.queue_id,
        epoch=epoch,
        lease_ms=ms_left(expires_at, now),
        handler=task.handler,
        handler_version=task.handler_version,
        payload_version=task.payload_version,
        attempt_number=task.attempts_used + 1,
        max_attempts=task.max_attempts,
        priority=task.priority,
        business_key=None if task.business_key is None else text_of(task.business_key),
        concurrency_key=None if task.concurrency_key is None else text_of(task.concurrency_key),
        concurrency_token=token,
        deadline_ms=None if task.deadline_at is None else ms_left(task.deadline_at, now),
    )


def resent(
    tx: Tx,
    rows: Collection[LeaseRow],
    *,
    session_id: bytes | None = None,
    leases: Mapping[bytes, AttemptLease] | None = None,
) -> list[Assignment]:
    """Describe attempts that are live already, under a new session and lease where given."""
    ends = {row.attempt_id: row.lease_expires_at for row in rows if row.lease_expires_at is not None}
    ends.update((attempt_id, lease.lease_expires_at) for attempt_id, lease in (leases or {}).items())
    live = [row for row in rows if row.attempt_id in ends]
    tasks = select_claimed(tx, sorted(row.task_id for row in live))
    return [
        assignment_of(
            tasks[row.task_id],
            session_id=session_id or row.session_id,
            attempt_id=row.attempt_id,
            epoch=row.epoch,
            token=row.concurrency_token,
            expires_at=ends[row.attempt_id],
            now=tx.now,
        )
        for row in live
    ]
