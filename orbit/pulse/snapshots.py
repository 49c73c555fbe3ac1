"""Snapshots: from a stored task row to what callers are shown, now or as it was when it was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from orbit.domain.keys import text_of
from orbit.domain.states import AttemptState, OnUnknown, TaskState
from orbit.pulse.views import TaskView
from orbit.store.sql.attempts import HeldRow, select_live_of_tasks
from orbit.store.sql.tasks import TaskRow
from orbit.store.transaction import Tx


def task_view(row: TaskRow) -> TaskView:
    """Show a task as it is."""
    return TaskView(
        task_id=row.task_id,
        namespace_id=row.namespace_id,
        queue_id=row.queue_id,
        handler=row.handler,
        handler_version=row.handler_version,
        payload_version=row.payload_version,
        business_key=None if row.business_key is None else text_of(row.business_key),
        concurrency_key=None if row.concurrency_key is None else text_of(row.concurrency_key),
        priority=row.priority,
        state=TaskState(row.state),
        revision=row.revision,
        epoch=row.epoch,
        attempts_used=row.attempts_used,
        created_at=row.created_at,
        updated_at=row.updated_at,
        available_at=row.available_at,
        delay_ms=row.delay_ms,
        start_deadline_at=row.start_deadline_at,
        timeout_ms=row.timeout_ms,
        deadline_at=row.deadline_at,
        attempt_timeout_ms=row.attempt_timeout_ms,
        max_attempts=row.max_attempts,
        backoff=row.backoff,
        backoff_initial_ms=row.backoff_initial_ms,
        backoff_max_ms=row.backoff_max_ms,
        on_unknown=None if row.on_unknown is None else OnUnknown(row.on_unknown),
        cancel_requested_at=row.cancel_requested_at,
        finished_at=row.finished_at,
        error_code=row.error_code,
        error_message=row.error_message,
    )


def overlay(row: TaskRow, held: HeldRow | None) -> TaskRow:
    """Complete a task's row with what its live attempt alone knows: that it runs, and that this Start is used.

    A Start writes the attempt's row and leaves the task's LEASED: one row less in the busiest transaction.
    """
    if held is None or row.state != TaskState.LEASED or held.attempt_state != AttemptState.RUNNING:
        return row
    return row._replace(state=TaskState.RUNNING, attempts_used=held.attempts_used)


def current(tx: Tx, rows: Sequence[TaskRow]) -> list[TaskRow]:
    """Complete rows that were read from the table; one more read if any task is held."""
    held = select_live_of_tasks(tx, [row.task_id for row in rows if row.state == TaskState.LEASED])
    return [overlay(row, held.get(row.task_id)) for row in rows]


def accepted_view(row: TaskRow) -> TaskView:
    """Show a task as its submit was answered: rebuilt from what never changes, so the receipt needs no body."""
    available_at = row.requested_available_at or row.created_at + timedelta(milliseconds=row.delay_ms or 0)
    return task_view(
        row._replace(
            state=TaskState.WAITING,
            revision=1,
            epoch=0,
            attempts_used=0,
            updated_at=row.created_at,
            available_at=available_at,
            cancel_requested_at=None,
            finished_at=None,
            error_code=None,
            error_message=None,
        )
    )
