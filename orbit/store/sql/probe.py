"""What a dispatcher looks at between claims: claimable lanes, due tasks, full applications. Takes no locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from orbit.store.driver import Row
from orbit.store.transaction import Read, Tx, read_in


class DueTask(NamedTuple):
    application_id: bytes
    task_id: bytes


class PulseRow(NamedTuple):
    """The database's time, and when the next delayed task is due (None: there is none)."""

    now: datetime
    next_due_at: datetime | None


_PULSE = """
SELECT UTC_TIMESTAMP(6), (
    SELECT due_at FROM tasks FORCE INDEX (ix_tasks_due) WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1)
"""

_DUE = """
SELECT application_id, task_id FROM tasks FORCE INDEX (ix_tasks_due)
WHERE due_at <= %s ORDER BY due_at LIMIT %s
"""

# One index entry per pair, however many lanes the pair has.
_FIRST_LANE = """
(SELECT %s FROM lanes FORCE INDEX (ix_lanes_claim)
WHERE queue_id = %s AND handler_digest = %s AND claimable = 1 LIMIT 1)"""

_CLAIMABLE_LANES = "SELECT lane_id FROM lanes FORCE INDEX (PRIMARY) WHERE lane_id IN %s AND claimable = 1"

_FULL = """
SELECT DISTINCT p.application_id FROM queues q JOIN application_quotas p ON p.application_id = q.application_id
WHERE q.queue_id IN %s AND p.active >= p.max_active
"""

_CANCELLED = """
SELECT a.attempt_id, a.lease_expires_at IS NOT NULL FROM attempts a FORCE INDEX (uq_attempts_attempt_id) JOIN tasks t ON t.task_id = a.task_id
WHERE a.attempt_id IN %s AND t.cancel_requested_at IS NOT NULL
"""


def read_pulse() -> Read[PulseRow]:
    """Read the clock and the earliest due time: one index entry."""
    return Read(_PULSE, (), lambda rows: PulseRow._make(rows[0]))


def select_due(tx: Tx, now: datetime, *, limit: int) -> list[DueTask]:
    """Read delayed tasks that have become due, over all applications, the longest due first."""
    return [DueTask._make(row) for row in tx.rows(_DUE, (now, limit))]


def read_claimable_pairs(pairs: Sequence[tuple[bytes, bytes]]) -> Read[set[int]]:
    """Read the positions of those (queue, handler digest) pairs with a claimable lane, keyed or not."""
    params = [value for position, pair in enumerate(pairs) for value in (position, *pair)]
    return Read(" UNION ALL ".join([_FIRST_LANE] * len(pairs)), params, _firsts)


def read_claimable_lanes(lane_ids: Iterable[bytes]) -> Read[set[bytes]]:
    """Read which of these lanes are claimable."""
    return read_in(_CLAIMABLE_LANES, list(lane_ids), _firsts)


def read_full_applications(queue_ids: Sequence[bytes]) -> Read[set[bytes]]:
    """Read which of these queues' applications have no room for another active attempt."""
    return read_in(_FULL, queue_ids, _firsts)


def _firsts(rows: Sequence[Row]) -> set[Any]:
    return {row[0] for row in rows}


def select_cancelled(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, bool]:
    """Return those attempts whose task somebody wants cancelled, and whether they are still live."""
    return {row[0]: bool(row[1]) for row in tx.rows(_CANCELLED, (list(attempt_ids),))}
