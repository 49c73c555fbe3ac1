"""Presence of dispatch processes: register, beat, leave, and forget those long dead (01-architecture, Processes)."""

from __future__ import annotations

from orbit.store.sql.dispatchers import delete_dispatcher, delete_silent_dispatchers, upsert_dispatcher
from orbit.store.transaction import Tx

# Long after anything could still ask for them: worker sessions name the dispatcher that carried them.
SILENT_SECONDS = 3_600
PRUNE_LIMIT = 100


def beat_dispatcher(
    tx: Tx, dispatcher_id: bytes, *, url: str, hint_address: str | None, sessions: int
) -> None:
    """Register the process, or tell that it lives and how many sessions it has.

    One statement for both: a row that was pruned during a long outage comes back with the next beat.
    """
    upsert_dispatcher(tx, dispatcher_id, url, hint_address, sessions=sessions)


def unregister_dispatcher(tx: Tx, dispatcher_id: bytes) -> None:
    """Leave at once instead of being missed after 15 s."""
    delete_dispatcher(tx, dispatcher_id)


def prune_dispatchers(tx: Tx) -> int:
    """Delete a bounded number of rows that have been silent for an hour; return how many."""
    return delete_silent_dispatchers(tx, silent_seconds=SILENT_SECONDS, limit=PRUNE_LIMIT)
