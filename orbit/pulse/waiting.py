"""Ends of tasks that hold no attempt: cancelled, or failed by a deadline, while they wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orbit.domain.states import TaskState
from orbit.pulse.endings import Failure
from orbit.pulse.settle import Results, TaskResult
from orbit.pulse.usage import Usage
from orbit.store.sql.lanes import recompute_heads
from orbit.store.sql.tasks import TaskEnd, TaskRow, update_ended
from orbit.store.transaction import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEnd:
    """The terminal state that a WAITING task takes, and why."""

    task: TaskRow
    state: TaskState
    failure: Failure | None = None
    cancel_requested_at: datetime | None = None


def end_waiting(tx: Tx, usage: Usage, results: Results, ends: Sequence[WaitingEnd]) -> None:
    """End tasks that wait. Locks: tasks (rank 7); lane rows under the application's write lock."""
    if not ends:
        return
    update_ended(tx, {end.task.task_id: _end(end, tx.now) for end in ends})
    recompute_heads(tx, [end.task.lane_id for end in ends if end.task.ready])
    for end in ends:
        usage.add_unfinished(end.task.queue_id, -1)
        results.rows.append(
            TaskResult(
                namespace_id=end.task.namespace_id,
                queue_id=end.task.queue_id,
                task_id=end.task.task_id,
                epoch=end.task.epoch,
                from_state=end.task.state,
                to_state=end.state,
                error_code=end.failure.code if end.failure else None,
                revision=end.task.revision + 1,
            )
        )


def _end(end: WaitingEnd, now: datetime) -> TaskEnd:
    return TaskEnd(
        state=end.state,
        attempts_used=end.task.attempts_used,
        error_code=end.failure.code if end.failure else end.task.error_code,
        error_message=end.failure.message if end.failure else end.task.error_message,
        finished_at=now,
        cancel_requested_at=end.cancel_requested_at or end.task.cancel_requested_at,
        updated_at=now,
    )
