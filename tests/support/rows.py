"""Put rows into states that ordinary commands reach only slowly, or not at all."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from orbit.store.session import Session
from orbit.store.transaction import Tx

MICROSECOND = timedelta(microseconds=1)
NO_GRACE = datetime(2000, 1, 1)


def set_columns(session: Session, table: str, values: dict[str, Any], **where: Any) -> None:
    """Set columns of the rows that match; at least one must."""
    sets = ", ".join(f"{name} = %s" for name in values)
    condition = " AND ".join(f"{name} = %s" for name in where)

    def work(tx: Tx) -> None:
        # Counted apart: the driver counts changed rows, and a row may already be so.
        found = tx.value(f"SELECT COUNT(*) FROM {table} WHERE {condition}", list(where.values()))
        assert found, f"no row of {table} matches"
        tx.execute(f"UPDATE {table} SET {sets} WHERE {condition}", [*values.values(), *where.values()])

    session.run(work)


def database_now(session: Session) -> datetime:
    """Return the database's time (naive UTC, microseconds)."""
    return session.run(lambda tx: tx.now)


def lapse(session: Session, attempt_id: bytes, *, seconds: float = 1) -> None:
    """Let an attempt's lease have ended `seconds` ago."""
    set_columns(
        session,
        "attempts",
        {"lease_expires_at": database_now(session) - timedelta(seconds=seconds)},
        attempt_id=attempt_id,
    )


def pass_deadline(session: Session, task_id: bytes, *, total: bool = False) -> None:
    """Let the start deadline (or the total one) of an unstarted task have passed a second ago."""
    past = database_now(session) - timedelta(seconds=1)
    column = "deadline_at" if total else "start_deadline_at"
    set_columns(session, "tasks", {column: past, "unstarted_deadline_at": past}, task_id=task_id)


def set_grace(session: Session, grace_until: datetime = NO_GRACE) -> None:
    """Record a beat of recovery now; for two seconds leases may be judged once `grace_until` has passed."""
    session.run(
        lambda tx: tx.execute(
            "UPDATE recovery_clock SET beat_at = UTC_TIMESTAMP(6), grace_until = %s WHERE id = 1",
            (grace_until,),
        )
    )
