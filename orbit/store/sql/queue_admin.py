"""Queues as their managers see them: create, configure, read, list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from orbit.store.sql.batch import UpdateById
from orbit.store.transaction import Rank, Tx


class QueueAdminRow(NamedTuple):
    """A queue's control values with its live backlog."""

    queue_id: bytes
    namespace_id: bytes
    name: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    unfinished: int
    revision: int


class NewQueueRow(NamedTuple):
    queue_id: bytes
    application_id: bytes
    namespace_id: bytes
    name: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    revision: int
    created_at: datetime
    updated_at: datetime


# The outer join pins the order: the queue's index first, then its counters by primary key.
_SELECT = """
SELECT q.queue_id, q.namespace_id, q.name, q.paused, q.max_concurrency, q.rate_per_second, q.max_unfinished_tasks,
       u.unfinished, q.revision
FROM queues q {index} LEFT JOIN queue_usage u ON u.queue_id = q.queue_id
"""
_BY_ID = _SELECT.format(index="FORCE INDEX (PRIMARY)") + "WHERE q.queue_id IN %s"
_BY_NAME = (
    _SELECT.format(index="FORCE INDEX (uq_queues_namespace_id_name)")
    + "WHERE q.namespace_id = %s AND q.name = %s"
)
_PAGE = _SELECT.format(index="FORCE INDEX (ix_queues_namespace)") + "WHERE q.namespace_id = %s"

_TAKEN = """
SELECT namespace_id, name FROM queues FORCE INDEX (uq_queues_namespace_id_name) WHERE (namespace_id, name) IN %s
"""

_BY_KEY = UpdateById(table="queues", index="PRIMARY", key="queue_id")
_CONTROLS = (
    "paused",
    "max_concurrency",
    "rate_per_second",
    "max_unfinished_tasks",
    "revision",
    "updated_at",
)


def select_queue_views(tx: Tx, queue_ids: Sequence[bytes]) -> dict[bytes, QueueAdminRow]:
    """Read queues by id; inside a command the application lock keeps them still."""
    rows = map(_view, tx.rows(_BY_ID, (list(queue_ids),)))
    return {row.queue_id: row for row in rows}


def select_queue_by_name(tx: Tx, namespace_id: bytes, name: str) -> QueueAdminRow | None:
    row = tx.row(_BY_NAME, (namespace_id, name))
    return None if row is None else _view(row)


def select_taken_names(tx: Tx, names: Collection[tuple[bytes, str]]) -> set[tuple[bytes, str]]:
    """Return those of the (namespace, name) pairs that belong to a queue."""
    return {(row[0], row[1]) for row in tx.rows(_TAKEN, (sorted(names),))}


def page_queues(
    tx: Tx, namespace_id: bytes, *, scope: Collection[bytes] | None, after: bytes | None, limit: int
) -> list[QueueAdminRow]:
    """Read the next queues of a namespace by id, inside a queue scope if one is given."""
    sql, params = _PAGE, list[object]([namespace_id])
    if scope is not None:
        if not scope:
            return []
        sql += " AND q.queue_id IN %s"
        params.append(sorted(scope))
    if after is not None:
        sql += " AND q.queue_id > %s"
        params.append(after)
    params.append(limit)
    return [_view(row) for row in tx.rows(sql + " ORDER BY q.queue_id LIMIT %s", params)]


def insert_queues(tx: Tx, queues: Sequence[NewQueueRow]) -> None:
    """Insert queues with usage counters at zero."""
    tx.insert(f"INSERT INTO queues ({', '.join(NewQueueRow._fields)})", queues)
    tx.insert(
        "INSERT INTO queue_usage (queue_id, active, leased_unstarted, unfinished, window_count, row_version)",
        [(queue.queue_id, 0, 0, 0, 0, 1) for queue in queues],
    )


def update_queue_controls(tx: Tx, queues: Iterable[QueueAdminRow]) -> None:
    """Replace the control values and the revision of queues. Locks: the queues (rank 4, sorted)."""
    tx.enter(Rank.QUEUE)
    controls = {
        queue.queue_id: (
            queue.paused,
            queue.max_concurrency,
            queue.rate_per_second,
            queue.max_unfinished_tasks,
            queue.revision,
            tx.now,
        )
        for queue in queues
    }
    _BY_KEY.run(tx, _CONTROLS, controls)


def _view(row: Sequence[Any]) -> QueueAdminRow:
    return QueueAdminRow._make(row)._replace(paused=bool(row[3]), unfinished=row[7] or 0)
