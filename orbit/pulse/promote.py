"""Promotion: tasks whose delay or backoff has ended become ready in their lanes, paused queue or not."""

from __future__ import annotations

from collections.abc import Sequence

from orbit.domain.states import TaskState
from orbit.pulse.commands import Promoted, PromoteTasks
from orbit.pulse.lanes import lanes_of
from orbit.store.sql.lanes import add_ready
from orbit.store.sql.tasks import TaskRow, select_tasks, update_promoted
from orbit.store.transaction import Tx


def promote(tx: Tx, application_id: bytes, commands: Sequence[PromoteTasks]) -> list[Promoted]:
    """Make due tasks claimable. Locks: tasks (rank 7), lane rows under the application's write lock."""
    wanted = sorted({task_id for command in commands for task_id in command.task_ids})
    due = {
        task.task_id: task
        for task in select_tasks(tx, wanted).values()
        if task.application_id == application_id and _is_due(task, tx)
    }
    if due:
        update_promoted(tx, sorted(due))
        add_ready(tx, lanes_of(tx, due.values()))
    return [Promoted(count=sum(task_id in due for task_id in command.task_ids)) for command in commands]


def _is_due(task: TaskRow, tx: Tx) -> bool:
    return task.state == TaskState.WAITING and task.due_at is not None and task.due_at <= tx.now
