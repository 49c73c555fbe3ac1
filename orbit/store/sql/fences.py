"""Who speaks: the current session of a worker and the validity of its credential, read inside each transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orbit.store.driver import Row
from orbit.store.transaction import Read, Tx, read_in


class FenceRow(NamedTuple):
    """A session that is its worker's current one. `valid` is 1 while its credential, application and namespace are."""

    session_id: bytes
    worker_ref: bytes
    namespace_id: bytes
    application_id: bytes
    actions: str
    valid: int


_SELECT = """
SELECT s.session_id, s.worker_ref, s.namespace_id, s.application_id, c.actions,
       c.state = 'ACTIVE' AND a.state = 'ACTIVE' AND n.state = 'ACTIVE'
       AND (c.expires_at IS NULL OR c.expires_at > UTC_TIMESTAMP(6))
FROM worker_sessions s
JOIN credentials c ON c.credential_id = s.credential_id
JOIN applications a ON a.application_id = s.application_id
JOIN namespaces n ON n.namespace_id = s.namespace_id
WHERE s.session_id IN %s
"""


def read_fences(session_ids: Sequence[bytes]) -> Read[dict[bytes, FenceRow]]:
    """Read sessions by id; a superseded session isn't found. Takes no locks."""
    return read_in(_SELECT, session_ids, _by_session)


def select_fences(tx: Tx, session_ids: Sequence[bytes]) -> dict[bytes, FenceRow]:
    """Run that read alone."""
    return tx.read(read_fences(session_ids))


def _by_session(rows: Sequence[Row]) -> dict[bytes, FenceRow]:
    return {row[0]: FenceRow._make(row) for row in rows}
