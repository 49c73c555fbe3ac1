"""Rows that nothing needs any more: idle lanes, registrations of workers long gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orbit.domain.limits import LANE_IDLE_MS
from orbit.store.transaction import Tx

LANE_IDLE_SECONDS = LANE_IDLE_MS // 1_000
# Long enough for an operator to ask who ran an attempt yesterday.
SESSION_SECONDS = 24 * 3_600

_FIND_LANES = f"""
SELECT application_id, lane_id FROM lanes FORCE INDEX (ix_lanes_touched)
WHERE touched_at < UTC_TIMESTAMP(6) - INTERVAL {LANE_IDLE_SECONDS} SECOND AND head_dispatch_at IS NULL
ORDER BY touched_at LIMIT %s
"""
# The head is a copy; whether a ready task is there is asked of the tasks themselves.
_DELETE_LANES = """
DELETE FROM lanes
WHERE lane_id IN %s AND application_id = %s AND touched_at < %s - INTERVAL %s SECOND AND head_dispatch_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.lane_id = lanes.lane_id AND t.ready = 1)
"""
_GONE = """
(s.ended_at < %s - INTERVAL %s SECOND
 OR (s.ended_at IS NULL AND s.connected_at < %s - INTERVAL %s SECOND
     AND NOT EXISTS (SELECT 1 FROM dispatchers d WHERE d.dispatcher_id = s.dispatcher_id)))
AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.lease_expires_at IS NOT NULL AND a.worker_ref = s.worker_ref)
"""


def select_idle_lanes(tx: Tx, limit: int) -> list[tuple[bytes, bytes]]:
    """Read (application, lane) of lanes without ready tasks, untouched for ten minutes; takes no locks."""
    return [(row[0], row[1]) for row in tx.rows(_FIND_LANES, (limit,))]


def delete_idle_lanes(tx: Tx, application_id: bytes, lane_ids: Sequence[bytes]) -> int:
    """Delete those that are still idle; the application lock is held. Locks: lane rows (rank 6)."""
    params = (sorted(lane_ids), application_id, tx.now, LANE_IDLE_SECONDS)
    return tx.execute(_DELETE_LANES, params)


def select_gone_workers(tx: Tx, limit: int) -> list[tuple[bytes, bytes]]:
    """Read (application, worker) of registrations whose session ended a day ago; takes no locks."""
    sql = f"SELECT s.application_id, s.worker_ref FROM worker_sessions s WHERE {_GONE} LIMIT %s"
    return [(row[0], row[1]) for row in tx.rows(sql, (*_gone_values(tx.now), limit))]


def delete_gone_workers(tx: Tx, application_id: bytes, worker_refs: Sequence[bytes]) -> int:
    """Delete those that are still gone and hold no attempt; the application lock is held."""
    sql = f"DELETE s FROM worker_sessions s WHERE s.worker_ref IN %s AND s.application_id = %s AND {_GONE}"
    return tx.execute(sql, (sorted(worker_refs), application_id, *_gone_values(tx.now)))


def _gone_values(now: datetime) -> tuple[datetime, int, datetime, int]:
    return (now, SESSION_SECONDS, now, SESSION_SECONDS)
