"""Candidates of a claim, read from lanes: occupied keys are excluded before the LIMIT (see docs/claiming.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.domain.keys import NO_KEY
from orbit.store.transaction import Tx


class Candidate(NamedTuple):
    queue_id: bytes
    dispatch_at: datetime
    task_id: bytes


class LaneSource(NamedTuple):
    """Where to look: a queue and a handler, with the lane of its keyless tasks, for at most `limit` tasks."""

    queue_id: bytes
    handler_digest: bytes
    keyless_lane_id: bytes
    limit: int


# The ready tasks of the keyless lane, in order. The index is forced: with a larger LIMIT MySQL takes another and sorts.
_KEYLESS = """(
SELECT t.queue_id, t.dispatch_at, t.task_id FROM tasks t FORCE INDEX (ix_tasks_claim)
WHERE t.lane_id = %s AND t.ready = 1 ORDER BY t.dispatch_at, t.task_id LIMIT %s)"""

# The head task of each keyed lane whose key is free: one index lookup a lane.
_KEYED = """(
SELECT l.queue_id, l.head_dispatch_at, (
    SELECT t.task_id FROM tasks t FORCE INDEX (ix_tasks_claim)
    WHERE t.lane_id = l.lane_id AND t.ready = 1 ORDER BY t.dispatch_at, t.task_id LIMIT 1)
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


def select_candidates(tx: Tx, sources: Sequence[LaneSource], *, keyed: bool) -> list[Candidate]:
    """Return candidates in the order in which they are to be dispatched; takes no locks.

    A keyed lane gives its head only: the next one must wait for the key.
    """
    if not sources:
        return []
    parts: list[str] = []
    params: list[object] = []
    for source in sources:
        parts.append(_KEYLESS)
        params += [source.keyless_lane_id, source.limit]
        if keyed:
            parts.append(_KEYED)
            params += [source.queue_id, source.handler_digest, NO_KEY, source.limit]
    rows = tx.rows(" UNION ALL ".join(parts), params)
    return sorted((Candidate._make(row) for row in rows if row[2] is not None), key=lambda c: (c[1], c[2]))
