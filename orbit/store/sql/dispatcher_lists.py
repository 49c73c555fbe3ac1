"""Reads of the dispatchers that are alive: where workers connect and where hints go."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from orbit.domain.limits import DISPATCHER_LIVE_MS
from orbit.store.transaction import Tx


class DispatcherRow(NamedTuple):
    """`hint_address` is `host:port` with a numeric host, None where the process takes no hints."""

    dispatcher_id: bytes
    url: str
    hint_address: str | None
    sessions: int
    heartbeat_at: datetime


_SELECT_LIVE = f"""
SELECT dispatcher_id, url, hint_address, sessions, heartbeat_at
FROM dispatchers
WHERE heartbeat_at > UTC_TIMESTAMP(6) - INTERVAL {DISPATCHER_LIVE_MS // 1_000} SECOND
ORDER BY sessions, dispatcher_id
"""


def select_live_dispatchers(tx: Tx) -> list[DispatcherRow]:
    """Read the dispatchers whose heartbeat is younger than 15 s, the least busy first."""
    return [DispatcherRow._make(row) for row in tx.rows(_SELECT_LIVE)]
