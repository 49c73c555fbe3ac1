"""Look for work without locking anything: which pairs can be claimed, what is due, why a queue is blocked.

A probe grants nothing. It tells a dispatcher whether a claim is worth a transaction, and when to look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from orbit.domain.durations import ms_to_wait
from orbit.domain.keys import NO_KEY, lane_id
from orbit.domain.limits import PROMOTE_MAX
from orbit.pulse.usage import QueueUse
from orbit.store.sql.probe import (
    read_claimable_lanes,
    read_claimable_pairs,
    read_full_applications,
    read_pulse,
    select_cancelled,
    select_due,
)
from orbit.store.sql.queues import QueueRow, read_queues
from orbit.store.transaction import Tx

Pair = tuple[bytes, bytes]  # queue id, handler digest


class Block(Enum):
    """Why a queue can't be claimed now."""

    PAUSED = "the queue is paused"
    FULL = "the queue's concurrency is used up"
    RATE = "the queue's Start window is used up"
    APPLICATION_FULL = "the application's active attempts are used up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """`wait_ms` says when the reason ends by itself; None where only another commit can end it."""

    reason: Block
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look for: `keyed` pairs for workers that declared concurrency keys, `keyless` ones for the others."""

    keyed: Sequence[Pair] = ()
    keyless: Sequence[Pair] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """`due` are delayed tasks by application; `next_due_ms` counts from now to the next one (None: there is none)."""

    keyed: frozenset[Pair]
    keyless: frozenset[Pair]
    blocked: Mapping[bytes, Blocked]
    due: Mapping[bytes, tuple[bytes, ...]]
    next_due_ms: int | None


def probe(tx: Tx, wanted: Wanted) -> Probed:
    """Read claimable lanes of the wanted pairs, why their queues are blocked, and up to 256 due tasks."""
    lanes = {lane_id(queue_id, handler, NO_KEY): (queue_id, handler) for queue_id, handler in wanted.keyless}
    queue_ids = sorted({queue_id for queue_id, _ in (*wanted.keyed, *wanted.keyless)})
    pulse, keyed, keyless, queues, full = tx.gather(
        read_pulse(),
        read_claimable_pairs(wanted.keyed),
        read_claimable_lanes(lanes),
        read_queues(queue_ids),
        read_full_applications(queue_ids),
    )
    is_due = pulse.next_due_at is not None and pulse.next_due_at <= pulse.now
    return Probed(
        keyed=frozenset(wanted.keyed[at] for at in keyed),
        keyless=frozenset(lanes[lane] for lane in keyless),
        blocked=_blocked(queues, full, pulse.now),
        due=_due(tx, pulse.now) if is_due else {},
        next_due_ms=None if pulse.next_due_at is None else ms_to_wait(pulse.next_due_at, pulse.now),
    )


def cancelled_attempts(tx: Tx, attempt_ids: Sequence[bytes]) -> dict[bytes, bool]:
    """Return those attempts whose task carries a cancel intent; false for those that it has ended already."""
    return select_cancelled(tx, attempt_ids) if attempt_ids else {}


def why_blocked(queue: QueueRow, now: datetime) -> Blocked | None:
    """Tell why a queue can't be claimed now, None where it can."""
    use = QueueUse.of(queue)
    if queue.paused:
        return Blocked(reason=Block.PAUSED)
    if queue.active >= queue.max_concurrency:
        return Blocked(reason=Block.FULL)
    if use.claim_room(now) > 0:
        return None
    # Starts that claimed attempts have reserved are freed by commits, the window's count by time.
    is_reserved = queue.leased_unstarted >= queue.rate_per_second
    return Blocked(reason=Block.RATE, wait_ms=None if is_reserved else use.window_left_ms(now))


def _blocked(queues: Iterable[QueueRow], full: set[bytes], now: datetime) -> dict[bytes, Blocked]:
    found = {}
    for queue in queues:
        blocked = why_blocked(queue, now)
        if blocked is None and queue.application_id in full:
            blocked = Blocked(reason=Block.APPLICATION_FULL)
        if blocked is not None:
            found[queue.queue_id] = blocked
    return found


def _due(tx: Tx, now: datetime) -> dict[bytes, tuple[bytes, ...]]:
    return _grouped((row.application_id, row.task_id) for row in select_due(tx, now, limit=PROMOTE_MAX))


def _grouped(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, tuple[bytes, ...]]:
    groups: dict[bytes, list[bytes]] = {}
    for key, value in rows:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}
