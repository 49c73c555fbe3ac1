"""Rows of tasks: insert, read, and the updates that each transition makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.sql.batch import UpdateById
from orbit.store.transaction import Tx


class TaskRow(NamedTuple):
    """Every stored column of a task, in the table's order, generated ones apart."""

    task_id: bytes
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    lane_id: bytes
    receipt_id: bytes
    handler: str
    handler_version: str
    payload_version: str
    business_key: bytes | None
    business_key_digest: bytes | None
    concurrency_key: bytes | None
    key_digest: bytes
    priority: int
    state: str
    ready: int | None
    available_at: datetime
    due_at: datetime | None
    unstarted_deadline_at: datetime | None
    requested_available_at: datetime | None
    delay_ms: int | None
    start_deadline_at: datetime | None
    timeout_ms: int | None
    deadline_at: datetime | None
    attempt_timeout_ms: int | None
    max_attempts: int
    backoff: str
    backoff_initial_ms: int
    backoff_max_ms: int
    on_unknown: str | None
    epoch: int
    attempts_used: int
    cancel_requested_at: datetime | None
    error_code: str | None
    error_message: str | None
    revision: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class ClaimRow(NamedTuple):
    """What of a task a claim decides on and tells its worker."""

    task_id: bytes
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    lane_id: bytes
    handler: str
    handler_version: str
    payload_version: str
    business_key: bytes | None
    concurrency_key: bytes | None
    key_digest: bytes
    priority: int
    state: str
    ready: int | None
    available_at: datetime
    unstarted_deadline_at: datetime | None
    deadline_at: datetime | None
    max_attempts: int
    epoch: int
    attempts_used: int


class TaskEnd(NamedTuple):
    """What a task becomes that waits no more: terminal, or in review."""

    state: str
    attempts_used: int
    error_code: str | None
    error_message: str | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    updated_at: datetime


class TaskReturn(NamedTuple):
    """What a task becomes that waits again."""

    ready: int | None
    available_at: datetime
    due_at: datetime | None
    unstarted_deadline_at: datetime | None
    attempts_used: int
    error_code: str | None
    error_message: str | None
    updated_at: datetime


TASK_COLUMNS = ", ".join(TaskRow._fields)

CLAIM_COLUMNS = ", ".join(ClaimRow._fields)

_BY_ID = UpdateById(table="tasks", index="PRIMARY", key="task_id")

_LEASE = """
UPDATE tasks FORCE INDEX (PRIMARY)
SET state = 'LEASED', ready = NULL, epoch = epoch + 1, revision = revision + 1, updated_at = %s
WHERE task_id IN %s
"""

_CLEAR_DEADLINE = """
UPDATE tasks FORCE INDEX (PRIMARY) SET unstarted_deadline_at = NULL, revision = revision + 1 WHERE task_id IN %s
"""

_PROMOTE = """
UPDATE tasks FORCE INDEX (PRIMARY)
SET ready = 1, due_at = NULL, revision = revision + 1, updated_at = %s
WHERE task_id IN %s
"""

_INTEND_CANCEL = """
UPDATE tasks FORCE INDEX (PRIMARY)
SET cancel_requested_at = %s, revision = revision + 1, updated_at = %s
WHERE task_id IN %s
"""


def insert_tasks(tx: Tx, tasks: Sequence[TaskRow], payloads: Iterable[tuple[bytes, bytes]]) -> None:
    """Insert tasks and, apart, their payloads."""
    tx.insert(f"INSERT INTO tasks ({TASK_COLUMNS})", tasks)
    tx.insert("INSERT INTO task_payloads (task_id, payload)", payloads)


def select_tasks(tx: Tx, task_ids: Sequence[bytes]) -> dict[bytes, TaskRow]:
    """Read tasks by id; takes no locks."""
    if not task_ids:
        return {}
    sql = f"SELECT {TASK_COLUMNS} FROM tasks WHERE task_id IN %s"
    rows = map(TaskRow._make, tx.rows(sql, (list(task_ids),)))
    return {row.task_id: row for row in rows}


def select_payloads(tx: Tx, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read payloads by task id, byte for byte."""
    if not task_ids:
        return {}
    rows = tx.rows("SELECT task_id, payload FROM task_payloads WHERE task_id IN %s", (list(task_ids),))
    return {row[0]: row[1] for row in rows}


def select_claimed(tx: Tx, task_ids: Sequence[bytes]) -> dict[bytes, ClaimRow]:
    """Read what claims need of tasks by id; takes no locks."""
    if not task_ids:
        return {}
    sql = f"SELECT {CLAIM_COLUMNS} FROM tasks WHERE task_id IN %s"
    rows = map(ClaimRow._make, tx.rows(sql, (list(task_ids),)))
    return {row.task_id: row for row in rows}


def update_ended(tx: Tx, ends: Mapping[bytes, TaskEnd]) -> None:
    """Store ends. Locks: the task rows (rank 7, sorted)."""
    _BY_ID.run(
        tx,
        TaskEnd._fields,
        ends,
        always="revision = revision + 1, ready = NULL, due_at = NULL, unstarted_deadline_at = NULL",
    )


def update_returned(tx: Tx, returns: Mapping[bytes, TaskReturn]) -> None:
    """Store returns to WAITING. Locks: the task rows (rank 7, sorted)."""
    _BY_ID.run(tx, TaskReturn._fields, returns, always="revision = revision + 1, state = 'WAITING'")


def update_leased(tx: Tx, task_ids: Sequence[bytes]) -> None:
    tx.write(_LEASE, (tx.now, sorted(task_ids)))


def clear_unstarted_deadlines(tx: Tx, task_ids: Sequence[bytes]) -> None:
    """Take started tasks out of the deadline index; a Start changes nothing else of a task's row."""
    tx.write(_CLEAR_DEADLINE, (sorted(task_ids),))


def update_promoted(tx: Tx, task_ids: Sequence[bytes]) -> None:
    tx.write(_PROMOTE, (tx.now, sorted(task_ids)))


def update_cancel_intent(tx: Tx, task_ids: Sequence[bytes]) -> None:
    tx.write(_INTEND_CANCEL, (tx.now, tx.now, sorted(task_ids)))
