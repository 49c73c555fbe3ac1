"""Candidates of a claim, read from lanes: occupied keys are excluded before the LIMIT (see docs/claiming.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.domain.keys import NO_KEY
from orbit.domain.priority import dispatch_at
from orbit.store.sql.tasks import CLAIM_COLUMNS, ClaimRow, select_claimed
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
_KEYED = """(
SELECT (
    SELECT t.task_id FROM tasks t FORCE INDEX (ix_tasks_claim)
    WHERE t.lane_id = l.lane_id AND t.ready = 1
    ORDER BY t.lane_id, t.ready, t.dispatch_at, t.task_id LIMIT 1)
FROM lanes l FORCE INDEX (ix_lanes_claim)
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
    candidates, *heads = tx.gather(*reads)
    found = select_claimed(tx, [task_id for ids in heads for task_id in ids])
    return sorted([*candidates, *found.values()], key=_order)


def _order(row: ClaimRow) -> tuple[datetime, bytes]:
    return dispatch_at(row.available_at, row.priority), row.task_id


def _keyless(sources: Sequence[LaneSource]) -> Read[list[ClaimRow]]:
    params = [value for source in sources for value in (source.keyless_lane_id, source.limit)]
    sql = " UNION ALL ".join([_KEYLESS] * len(sources))
    return Read(sql, params, lambda rows: [ClaimRow._make(row) for row in rows])


def _keyed(sources: Sequence[LaneSource]) -> Read[list[bytes]]:
    params = [value for s in sources for value in (s.queue_id, s.handler_digest, NO_KEY, s.limit)]
    sql = " UNION ALL ".join([_KEYED] * len(sources))
    return Read(sql, params, lambda rows: [row[0] for row in rows if row[0] is not None])
