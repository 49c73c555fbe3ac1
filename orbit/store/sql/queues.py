"""Queues with their usage counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.sql.batch import UpdateById
from orbit.store.transaction import Read, Tx, read_in


class QueueRow(NamedTuple):
    queue_id: bytes
    application_id: bytes
    namespace_id: bytes
    paused: int
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    active: int
    leased_unstarted: int
    unfinished: int
    window_started_at: datetime | None
    window_count: int


class UsageValues(NamedTuple):
    """The counters of one queue as they are to be stored."""

    active: int
    leased_unstarted: int
    unfinished: int
    window_started_at: datetime | None
    window_count: int


_COLUMNS = """
    q.queue_id, q.application_id, q.namespace_id, q.paused, q.max_concurrency, q.rate_per_second,
    q.max_unfinished_tasks, u.active, u.leased_unstarted, u.unfinished, u.window_started_at, u.window_count
"""
_SELECT = f"""
SELECT {_COLUMNS} FROM queues q JOIN queue_usage u ON u.queue_id = q.queue_id WHERE q.queue_id IN %s
"""
_SELECT_OF = f"""
SELECT {_COLUMNS} FROM (
    SELECT DISTINCT queue_id FROM attempts FORCE INDEX (uq_attempts_attempt_id) WHERE attempt_id IN %s
) a
JOIN queues q ON q.queue_id = a.queue_id JOIN queue_usage u ON u.queue_id = q.queue_id
"""

_USAGE_BY_ID = UpdateById(table="queue_usage", index="PRIMARY", key="queue_id")


def read_queues(queue_ids: Sequence[bytes]) -> Read[list[QueueRow]]:
    """Read queues with their usage; the application lock keeps them still."""
    return read_in(_SELECT, queue_ids, lambda rows: [QueueRow._make(row) for row in rows])


def read_queues_of(attempt_ids: Sequence[bytes]) -> Read[list[QueueRow]]:
    """Read the queues of some attempts, where nobody has named them yet."""
    return read_in(_SELECT_OF, attempt_ids, lambda rows: [QueueRow._make(row) for row in rows])


def select_queues(tx: Tx, queue_ids: Sequence[bytes]) -> dict[bytes, QueueRow]:
    """Run that read alone."""
    return {row.queue_id: row for row in tx.read(read_queues(queue_ids))}


def update_usage(tx: Tx, usage: Mapping[bytes, UsageValues]) -> None:
    """Store the counters of queues. Locks: the usage rows (rank 4, sorted)."""
    _USAGE_BY_ID.run(tx, UsageValues._fields, usage, always="row_version = row_version + 1")
