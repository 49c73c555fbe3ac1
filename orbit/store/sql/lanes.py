"""Lanes: one row for the ready tasks of a queue, handler and key, so that claims cost the same whatever waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Tx


class LaneRow(NamedTuple):
    """A lane with the earliest `dispatch_at` among the tasks that have just become ready in it."""

    lane_id: bytes
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes
    handler_digest: bytes
    key_digest: bytes
    head_dispatch_at: datetime
    occupied: int
    touched_at: datetime


_RAISE = """
ON DUPLICATE KEY UPDATE
    head_dispatch_at = LEAST(COALESCE(head_dispatch_at, VALUES(head_dispatch_at)), VALUES(head_dispatch_at)),
    touched_at = VALUES(touched_at)
"""

# A scalar subquery takes no locks on tasks. ORDER BY names the whole index, the equal columns too: only then does MySQL
# stop at a lane's first entry; with the last two columns alone it reads and sorts the lane, and so does MIN().
_RECOMPUTE = """
UPDATE lanes FORCE INDEX (PRIMARY)
SET head_dispatch_at = (
        SELECT t.dispatch_at FROM tasks t FORCE INDEX (ix_tasks_claim)
        WHERE t.lane_id = lanes.lane_id AND t.ready = 1
        ORDER BY t.lane_id, t.ready, t.dispatch_at, t.task_id LIMIT 1
    ),
    touched_at = %s
WHERE lane_id IN %s
"""

_OCCUPY = """
UPDATE lanes FORCE INDEX (ix_lanes_key) SET occupied = %s WHERE namespace_id = %s AND key_digest IN %s
"""


def add_ready(tx: Tx, lanes: Iterable[LaneRow]) -> None:
    """Make lanes for tasks that have become ready, or lower their heads. Locks: lane rows (rank 6, sorted)."""
    tx.insert(f"INSERT INTO lanes ({', '.join(LaneRow._fields)})", sorted(lanes), _RAISE)


def recompute_heads(tx: Tx, lane_ids: Iterable[bytes]) -> None:
    """Set the heads of lanes that ready tasks have left. Locks: lane rows (rank 6, sorted)."""
    ids = sorted(set(lane_ids))
    if ids:
        tx.write(_RECOMPUTE, (tx.now, ids))


def set_occupied(tx: Tx, namespace_id: bytes, key_digests: Sequence[bytes], *, occupied: bool) -> None:
    """Flip a key's lanes, in whatever queue they are. Locks: lane rows (rank 6)."""
    tx.write(_OCCUPY, (int(occupied), namespace_id, sorted(key_digests)))
