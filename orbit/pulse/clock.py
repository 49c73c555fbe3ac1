"""The recovery clock: when leases may be judged (01-architecture, "Outages and leases").

A worker that could not renew, because the database, every dispatcher or recovery itself was away, or because the
database's clock jumped, must get the time to do so before its work is called an unknown effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from orbit.domain.durations import MILLISECOND
from orbit.domain.limits import DISPATCHER_LIVE_MS, RECOVERY_BEAT_MS, RECOVERY_GRACE_EXTRA_MS
from orbit.store.sql.clock import ClockRow, Signs, lock_clock, select_clock, select_signs, update_clock
from orbit.store.transaction import Tx

# A beat this far from the database's time, either way, says that the clock jumped or that nobody beats.
FRESH: Final = 2 * RECOVERY_BEAT_MS * MILLISECOND


class Why(StrEnum):
    """Why a beat extended the grace."""

    BEAT_MISSED = "BEAT_MISSED"
    CLOCK_BACK = "CLOCK_BACK"
    NO_DISPATCHER = "NO_DISPATCHER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One beat in database time; `why` is None when the grace was left alone."""

    now: datetime
    grace_until: datetime
    why: Why | None


def beat_interval_ms(renew_ms: int) -> int:
    """Return how often recovery beats: each second, and four times per renewal period where that is shorter."""
    return min(RECOVERY_BEAT_MS, renew_ms // 4)


def beat(tx: Tx, renew_ms: int) -> Beat:
    """Record that recovery lives, and give leases grace where they could not be renewed.

    The grace is now + one renewal period + 5 s, set when the last beat is older than a renewal period (nobody beat,
    or the clock stepped forward) and again with every beat while no dispatcher had a heartbeat within 15 s, so that
    it is counted from the first live one. Any number of recoverers may beat.

    Locks: the clock row, alone. Writes: the clock row.
    """
    clock = lock_clock(tx)
    signs = select_signs(tx)  # after the lock: a beat that waited must not look older than it is
    full = signs.now + (renew_ms + RECOVERY_GRACE_EXTRA_MS) * MILLISECOND
    why = _why(clock, signs, renew_ms)
    # A grace set before the clock stepped back would otherwise last as long as the step.
    grace_until = full if why else min(clock.grace_until, full)
    update_clock(tx, ClockRow(beat_at=signs.now, grace_until=grace_until))
    return Beat(now=signs.now, grace_until=grace_until, why=why)


def read_grace(tx: Tx) -> datetime:
    """Return the time until which no lease may be judged; a lease may be judged once it is <= `tx.now`.

    While the last beat isn't fresh the answer lies ahead of `tx.now`: after an outage or a step of the clock the next
    beat has to decide first.

    Locks: none.
    """
    clock = select_clock(tx)
    if abs(tx.now - clock.beat_at) > FRESH:
        return max(clock.grace_until, tx.now + FRESH)
    return clock.grace_until


def _why(clock: ClockRow, signs: Signs, renew_ms: int) -> Why | None:
    if signs.now - clock.beat_at > renew_ms * MILLISECOND:
        return Why.BEAT_MISSED
    if clock.beat_at - signs.now > FRESH:
        return Why.CLOCK_BACK
    if signs.heartbeat_at is None or signs.now - signs.heartbeat_at > DISPATCHER_LIVE_MS * MILLISECOND:
        return Why.NO_DISPATCHER
    return None
