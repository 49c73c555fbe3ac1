"""The recovery clock as a test needs it."""

from __future__ import annotations

from orbit.store.dsn import Dsn
from orbit.store.session import Session


def end_grace(dsn: Dsn) -> None:
    """Let leases be judged for the next two seconds, as if recovery had beaten just now and no grace were running.

    Call it right before `expire`: nothing beats in a test without recovery processes, and a stale beat judges nothing.
    """
    session = Session(dsn)
    try:
        session.run(
            lambda tx: tx.execute(
                "UPDATE recovery_clock SET beat_at = UTC_TIMESTAMP(6), grace_until = UTC_TIMESTAMP(6) WHERE id = 1"
            )
        )
    finally:
        session.close()
