"""Rows of attempts, and the join of an attempt with its task that ends and Starts are decided on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from orbit.store.driver import Row
from orbit.store.sql.batch import UpdateById
from orbit.store.transaction import Rank, Read, Tx, read_in


class HeldRow(NamedTuple):
    """An attempt joined with its task. `attempts_used` counts this attempt's own Start too."""

    attempt_id: bytes
    task_id: bytes
    epoch: int
    attempt_state: str
    key_digest: bytes | None
    worker_ref: bytes
    session_id: bytes
    lease_expires_at: datetime | None
    start_command_id: bytes | None
    attempt_deadline_at: datetime | None
    end_command_id: bytes | None
    result_digest: bytes | None
    ended_task_state: str | None
    attempt_error_code: str | None
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    task_state: str
    start_deadline_at: datetime | None
    unstarted_deadline_at: datetime | None
    deadline_at: datetime | None
    attempt_timeout_ms: int | None
    max_attempts: int
    backoff: str
    backoff_initial_ms: int
    backoff_max_ms: int
    on_unknown: str | None
    attempts_used: int
    cancel_requested_at: datetime | None
    revision: int


class NewAttempt(NamedTuple):
    task_id: bytes
    epoch: int
    attempt_id: bytes
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    key_digest: bytes | None
    concurrency_token: int | None
    state: str
    worker_ref: bytes
    session_id: bytes
    leased_at: datetime
    lease_expires_at: datetime
    lease_cap_at: datetime | None


class AttemptStart(NamedTuple):
    started_at: datetime
    lease_expires_at: datetime
    lease_cap_at: datetime | None
    start_command_id: bytes
    deadline_at: datetime | None


class AttemptEnd(NamedTuple):
    ended_at: datetime
    state: str
    end_command_id: bytes | None
    result_digest: bytes | None
    ended_task_state: str
    error_code: str | None
    error_message: str | None


class LeaseRow(NamedTuple):
    """What renewing and resuming is judged on."""

    attempt_id: bytes
    task_id: bytes
    concurrency_token: int | None
    lease_expires_at: datetime | None
    epoch: int
    state: str
    session_id: bytes
    worker_ref: bytes
    lease_cap_at: datetime | None
    cancel_requested_at: datetime | None


class AttemptLease(NamedTuple):
    """The end that a lease is given, and the session that holds it from now on."""

    lease_expires_at: datetime
    session_id: bytes


_HELD = """
SELECT a.attempt_id, a.task_id, a.epoch, a.state, a.key_digest, a.worker_ref, a.session_id,
       a.lease_expires_at, a.start_command_id, a.deadline_at, a.end_command_id, a.result_digest, a.ended_task_state,
       a.error_code, t.application_id, t.namespace_id, t.queue_id, t.state, t.start_deadline_at,
       t.unstarted_deadline_at, t.deadline_at, t.attempt_timeout_ms, t.max_attempts, t.backoff, t.backoff_initial_ms,
       t.backoff_max_ms, t.on_unknown, t.attempts_used + (a.state = 'RUNNING'), t.cancel_requested_at, t.revision
FROM attempts a JOIN tasks t ON t.task_id = a.task_id
"""
_HELD_BY_ID = _HELD + "WHERE a.attempt_id IN %s"
_HELD_BY_TASK = _HELD + "WHERE a.task_id IN %s AND a.epoch = t.epoch AND a.lease_expires_at IS NOT NULL"

_LOCK_LEASES = (
    "SELECT attempt_id FROM attempts FORCE INDEX (uq_attempts_attempt_id) WHERE attempt_id IN %s FOR UPDATE"
)
_LEASES = """
SELECT a.attempt_id, a.task_id, a.concurrency_token, a.lease_expires_at, a.epoch, a.state, a.session_id, a.worker_ref,
       a.lease_cap_at, t.cancel_requested_at
FROM attempts a JOIN tasks t ON t.task_id = a.task_id
WHERE a.attempt_id IN %s
"""

_BY_ID = UpdateById(table="attempts", index="uq_attempts_attempt_id", key="attempt_id")


def read_held(attempt_ids: Sequence[bytes]) -> Read[dict[bytes, HeldRow]]:
    """Read attempts with their tasks by attempt id; takes no locks."""
    return read_in(_HELD_BY_ID, attempt_ids, _by_attempt)


def select_held(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, HeldRow]:
    """Run that read alone."""
    return tx.read(read_held(attempt_ids))


def _by_attempt(rows: Sequence[Row]) -> dict[bytes, HeldRow]:
    return {row[0]: HeldRow._make(row) for row in rows}


def select_live_of_tasks(tx: Tx, task_ids: Sequence[bytes]) -> dict[bytes, HeldRow]:
    """Read the live attempts of tasks, by task id."""
    if not task_ids:
        return {}
    rows = map(HeldRow._make, tx.rows(_HELD_BY_TASK, (list(task_ids),)))
    return {row.task_id: row for row in rows}


def insert_attempts(tx: Tx, attempts: Iterable[NewAttempt]) -> None:
    tx.insert(f"INSERT INTO attempts ({', '.join(NewAttempt._fields)})", attempts)


def update_attempts_started(tx: Tx, starts: Mapping[bytes, AttemptStart]) -> None:
    """Grant Starts. Locks: the attempt rows (rank 8, sorted)."""
    _BY_ID.run(tx, AttemptStart._fields, starts, always="state = 'RUNNING'")


def update_attempts_ended(tx: Tx, ends: Mapping[bytes, AttemptEnd]) -> None:
    """End attempts; the lease goes with the life. Locks: the attempt rows (rank 8, sorted)."""
    _BY_ID.run(tx, AttemptEnd._fields, ends, always="lease_expires_at = NULL")


def lock_leases(
    tx: Tx, attempt_ids: Sequence[bytes], *reads: Read[Any]
) -> tuple[dict[bytes, LeaseRow], list[Any]]:
    """Lock attempts by id; return what their renewal is judged on, and what `reads` found after that.

    One round trip, since a renewal that waits for a distant database may come too late.

    Locks: the attempt rows (rank 8, sorted).
    """
    if attempt_ids:
        tx.enter(Rank.ATTEMPT)
        tx.write(_LOCK_LEASES, (sorted(attempt_ids),))
    leases, *found = tx.gather(read_in(_LEASES, sorted(attempt_ids), _leases), *reads)
    return leases, found


def select_leases(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, LeaseRow]:
    """Read the same without locks."""
    return tx.read(read_in(_LEASES, sorted(attempt_ids), _leases))


def _leases(rows: Sequence[Row]) -> dict[bytes, LeaseRow]:
    return {row[0]: LeaseRow._make(row) for row in rows}


def update_leases(tx: Tx, leases: Mapping[bytes, AttemptLease]) -> None:
    """Extend leases of rows that are locked and live."""
    _BY_ID.run(tx, AttemptLease._fields, leases)


def select_live_of_workers(tx: Tx, worker_refs: Sequence[bytes]) -> list[bytes]:
    """Return the ids of some workers' live attempts: one pass over the live part of the lease index."""
    sql = """
        SELECT attempt_id FROM attempts FORCE INDEX (ix_attempts_lease)
        WHERE lease_expires_at IS NOT NULL AND worker_ref IN %s
    """
    return [row[0] for row in tx.rows(sql, (list(worker_refs),))] if worker_refs else []


def insert_outputs(tx: Tx, outputs: Iterable[tuple[bytes, int, bytes]]) -> None:
    """Store outputs as (task, epoch, bytes)."""
    tx.insert("INSERT INTO attempt_outputs (task_id, epoch, output)", outputs)


class NewEvidence(NamedTuple):
    """A result that came too late."""

    attempt_id: bytes
    evidence_digest: bytes
    received_at: datetime
    outcome: str
    error_code: str | None
    error_message: str | None
    output: bytes | None


def count_evidence(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, int]:
    sql = "SELECT attempt_id, COUNT(*) FROM late_evidence WHERE attempt_id IN %s GROUP BY attempt_id"
    return {row[0]: row[1] for row in tx.rows(sql, (list(attempt_ids),))}


def insert_evidence(tx: Tx, rows: Iterable[NewEvidence]) -> None:
    """Keep late results; one that is already kept is passed over."""
    tx.insert(
        f"INSERT INTO late_evidence ({', '.join(NewEvidence._fields)})",
        rows,
        "ON DUPLICATE KEY UPDATE evidence_digest = VALUES(evidence_digest)",
    )
