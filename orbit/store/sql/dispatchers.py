"""Dispatchers: the processes that workers connect to. A row grants nothing; it only says where to find one."""

from __future__ import annotations

from orbit.store.transaction import Tx

_UPSERT = """
INSERT INTO dispatchers (dispatcher_id, url, hint_address, sessions, started_at, heartbeat_at)
VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE sessions = VALUES(sessions), heartbeat_at = VALUES(heartbeat_at)
"""
_DELETE = "DELETE FROM dispatchers WHERE dispatcher_id = %s"
_DELETE_SILENT = """
DELETE FROM dispatchers
WHERE heartbeat_at < UTC_TIMESTAMP(6) - INTERVAL %s SECOND ORDER BY heartbeat_at LIMIT %s
"""


def upsert_dispatcher(
    tx: Tx, dispatcher_id: bytes, url: str, hint_address: str | None, *, sessions: int
) -> None:
    """Register a dispatcher or renew its heartbeat, in database time."""
    tx.execute(_UPSERT, (dispatcher_id, url, hint_address, sessions))


def delete_dispatcher(tx: Tx, dispatcher_id: bytes) -> None:
    tx.execute(_DELETE, (dispatcher_id,))


def delete_silent_dispatchers(tx: Tx, *, silent_seconds: int, limit: int) -> int:
    """Delete rows without a heartbeat for so long; return how many."""
    return tx.execute(_DELETE_SILENT, (silent_seconds, limit))
