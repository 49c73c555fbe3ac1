"""Indexed pages of a queue's tasks, newest first: each filter has the index that is equal to filter plus order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orbit.domain.states import LIVE, TaskState
from orbit.store.sql.tasks import TASK_COLUMNS, TaskRow
from orbit.store.transaction import Tx

_HELD_AS = """
EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = tasks.task_id AND a.epoch = tasks.epoch AND a.state = %s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    """What to list. Times are naive UTC; `after` is (created_at, task_id) of the last task already shown."""

    queue_id: bytes
    state: str | None = None
    business_key_digest: bytes | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    after: tuple[datetime, bytes] | None = None
    limit: int


def page_tasks(tx: Tx, page: TaskPage) -> list[TaskRow]:
    """Read the next tasks of a queue by creation time and id, newest first."""
    sql, params = page_statement(page)
    return [TaskRow._make(row) for row in tx.rows(sql, params)]


def page_statement(page: TaskPage) -> tuple[str, list[Any]]:
    """Return the statement and parameters of a page (apart, so that its plan can be examined)."""
    index = "ix_tasks_list"
    where: list[str] = ["queue_id = %s"]
    params: list[Any] = [page.queue_id]
    if page.state is not None:
        index = "ix_tasks_list_state"
        where.append("state = %s")
        params.append(TaskState.LEASED if page.state in LIVE else page.state)
    if page.state in LIVE:
        # A held task stands where its live attempt does; they are at most as many as the queue's permits.
        where.append(_HELD_AS)
        params.append(page.state)
    if page.business_key_digest is not None:
        # Few tasks share a business key, so that with both filters this index reads the fewest rows.
        index = "ix_tasks_list_business"
        where.append("business_key_digest = %s")
        params.append(page.business_key_digest)
    if page.created_from is not None:
        where.append("created_at >= %s")
        params.append(page.created_from)
    if page.created_before is not None:
        where.append("created_at < %s")
        params.append(page.created_before)
    if page.after is not None:
        # The first condition bounds the index range; a row comparison alone would not.
        where.append("created_at <= %s AND (created_at < %s OR task_id < %s)")
        params += [page.after[0], page.after[0], page.after[1]]
    params.append(page.limit)
    sql = f"""
        SELECT {TASK_COLUMNS} FROM tasks FORCE INDEX ({index}) WHERE {" AND ".join(where)}
        ORDER BY created_at DESC, task_id DESC LIMIT %s
    """
    return sql, params
