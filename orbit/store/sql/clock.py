"""The recovery clock's one row: when recovery last looked, and until when no lease counts as expired."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Tx


class ClockRow(NamedTuple):
    beat_at: datetime
    grace_until: datetime


class Signs(NamedTuple):
    """The database's time, and the freshest heartbeat of any dispatcher (None: there is none)."""

    now: datetime
    heartbeat_at: datetime | None


def lock_clock(tx: Tx) -> ClockRow:
    """Lock and read the row; recoverers beat one after the other."""
    row = tx.row("SELECT beat_at, grace_until FROM recovery_clock WHERE id = 1 FOR UPDATE")
    assert row is not None, "the migration makes this row"
    return ClockRow._make(row)


def select_clock(tx: Tx) -> ClockRow:
    """Read the row without a lock."""
    row = tx.row("SELECT beat_at, grace_until FROM recovery_clock WHERE id = 1")
    assert row is not None, "the migration makes this row"
    return ClockRow._make(row)


def select_signs(tx: Tx) -> Signs:
    row = tx.row("SELECT UTC_TIMESTAMP(6), (SELECT MAX(heartbeat_at) FROM dispatchers)")
    assert row is not None
    return Signs._make(row)


def update_clock(tx: Tx, row: ClockRow) -> None:
    tx.execute("UPDATE recovery_clock SET beat_at = %s, grace_until = %s WHERE id = 1", row)
