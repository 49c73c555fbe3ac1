"""Candidates of a claim, read from lanes: occupied keys are excluded before the LIMIT (see docs/claiming.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.domain.keys import NO_KEY
from orbit.domain.priority import dispatch_at
from orbit.store.driver import Row
from orbit.store.sql.tasks import CLAIM_COLUMNS, ClaimRow
from orbit.store.transaction import Read, Tx


class LaneSource(NamedTuple):
    """Where to look: a queue and a handler, with the lane of its keyless tasks, for at most `limit` tasks."""

    queue_id: bytes
    handler_digest: bytes
    keyless_lane_id: bytes
    limit: int


# The ready tasks of a keyless lane, in order. The index is forced: with a larger LIMIT MySQL takes another and sorts.
_KEYLESS = f"""(
SELECT {CLAIM_COLUMNS} FROM tasks FORCE INDEX (ix_tasks_claim)
WHERE lane_id = %s AND ready = 1 ORDER BY lane_id, ready, dispatch_at, task_id LIMIT %s)"""

# The head task of each keyed lane whose key is free: one index lookup a lane. ORDER BY names the whole index, the equal
# columns too: only then does MySQL stop at a lane's first entry instead of reading and sorting the lane.
_KEYED = f"""(
SELECT {", ".join(f"t.{column}" for column in ClaimRow._fields)}
FROM lanes l FORCE INDEX (ix_lanes_claim) STRAIGHT_JOIN tasks t FORCE INDEX (PRIMARY) ON t.task_id = (
    SELECT h.task_id FROM tasks h FORCE INDEX (ix_tasks_claim)
    WHERE h.lane_id = l.lane_id AND h.ready = 1
    ORDER BY h.lane_id, h.ready, h.dispatch_at, h.task_id LIMIT 1)
WHERE l.queue_id = %s AND l.handler_digest = %s AND l.claimable = 1 AND l.key_digest <> %s
ORDER BY l.head_dispatch_at LIMIT %s)"""

_CLAIMABLE = """
SELECT DISTINCT queue_id, handler_digest FROM lanes FORCE INDEX (ix_lanes_claim)
WHERE queue_id IN %s AND handler_digest IN %s AND claimable = 1
"""


def select_claimable_pairs(
    tx: Tx, queue_ids: Sequence[bytes], handler_digests: Sequence[bytes]
) -> set[tuple[bytes, bytes]]:
    """Return the (queue, handler) pairs that have something to claim."""
    return {(row[0], row[1]) for row in tx.rows(_CLAIMABLE, (list(queue_ids), list(handler_digests)))}


def select_candidates(tx: Tx, sources: Sequence[LaneSource], *, keyed: bool) -> list[ClaimRow]:
    """Return candidates in the order in which they are to be dispatched; takes no locks.

    A keyed lane gives its head only: the next one must wait for the key.
    """
    if not sources:
        return []
    reads = [_keyless(sources), _keyed(sources)] if keyed else [_keyless(sources)]
    return sorted([row for rows in tx.gather(*reads) for row in rows], key=_order)


def _order(row: ClaimRow) -> tuple[datetime, bytes]:
    return dispatch_at(row.available_at, row.priority), row.task_id


def _keyless(sources: Sequence[LaneSource]) -> Read[list[ClaimRow]]:
    params = [value for source in sources for value in (source.keyless_lane_id, source.limit)]
    return Read(" UNION ALL ".join([_KEYLESS] * len(sources)), params, _claim_rows)


def _keyed(sources: Sequence[LaneSource]) -> Read[list[ClaimRow]]:
    params = [value for s in sources for value in (s.queue_id, s.handler_digest, NO_KEY, s.limit)]
    return Read(" UNION ALL ".join([_KEYED] * len(sources)), params, _claim_rows)


def _claim_rows(rows: Sequence[Row]) -> list[ClaimRow]:
    return [ClaimRow._make(row) for row in rows]
