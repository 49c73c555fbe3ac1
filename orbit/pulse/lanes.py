"""Lanes of tasks that have just become ready: their heads, and whether their keys are held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from orbit.domain.keys import NO_KEY, handler_digest
from orbit.domain.priority import dispatch_at
from orbit.store.sql.keys import select_keys
from orbit.store.sql.lanes import LaneRow
from orbit.store.sql.tasks import TaskRow
from orbit.store.transaction import Tx


def lanes_of(tx: Tx, tasks: Iterable[TaskRow]) -> list[LaneRow]:
    """Return the lanes of tasks that have become ready, with their heads and whether their keys are held now."""
    heads: dict[bytes, TaskRow] = {}
    for task in tasks:
        known = heads.get(task.lane_id)
        if known is None or _order(task) < _order(known):
            heads[task.lane_id] = task
    held = held_keys(tx, heads.values())
    return [_lane(tx, task, occupied=(task.namespace_id, task.key_digest) in held) for task in heads.values()]


def held_keys(tx: Tx, tasks: Iterable[TaskRow]) -> set[tuple[bytes, bytes]]:
    """Return the (namespace, key digest) pairs of these tasks that are held now."""
    digests: dict[bytes, set[bytes]] = defaultdict(set)
    for task in tasks:
        if task.key_digest != NO_KEY:
            digests[task.namespace_id].add(task.key_digest)
    return {
        (namespace_id, row.key_digest)
        for namespace_id in sorted(digests)
        for row in select_keys(tx, namespace_id, sorted(digests[namespace_id])).values()
        if row.holder_attempt_id is not None
    }


def _order(task: TaskRow) -> datetime:
    return dispatch_at(task.available_at, task.priority)


def _lane(tx: Tx, task: TaskRow, *, occupied: bool) -> LaneRow:
    return LaneRow(
        lane_id=task.lane_id,
        application_id=task.application_id,
        namespace_id=task.namespace_id,
        queue_id=task.queue_id,
        handler_digest=handler_digest(task.handler, task.handler_version),
        key_digest=task.key_digest,
        head_dispatch_at=dispatch_at(task.available_at, task.priority),
        occupied=int(occupied),
        touched_at=tx.now,
    )
