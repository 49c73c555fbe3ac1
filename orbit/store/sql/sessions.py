"""Worker sessions: a worker process's fixed registration and its present session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.sql.access import CREDENTIAL_COLUMNS, CREDENTIAL_JOINS, CredentialRow
from orbit.store.transaction import Tx


class WorkerRow(NamedTuple):
    """What identifies a registration, and which session speaks for it now."""

    worker_ref: bytes
    namespace_id: bytes
    credential_id: bytes
    worker_id: bytes
    registration_digest: bytes
    session_id: bytes
    generation: int


class SessionRow(NamedTuple):
    """A registration as it is stored when a session opens or takes over."""

    worker_ref: bytes
    application_id: bytes
    namespace_id: bytes
    credential_id: bytes
    worker_id: bytes
    registration_digest: bytes
    session_id: bytes
    generation: int
    dispatcher_id: bytes
    name: str | None
    sdk: str
    capacity: int
    concurrency_keys: bool
    connected_at: datetime


_SELECT_WORKERS = """
SELECT worker_ref, namespace_id, credential_id, worker_id, registration_digest, session_id, generation
FROM worker_sessions
WHERE (namespace_id, credential_id, worker_id) IN %s
"""

# The unique registration key decides; what is fixed at first registration is left alone.
_TAKE_OVER = """
ON DUPLICATE KEY UPDATE
    session_id = VALUES(session_id), generation = VALUES(generation), dispatcher_id = VALUES(dispatcher_id),
    name = VALUES(name), sdk = VALUES(sdk), capacity = VALUES(capacity), connected_at = VALUES(connected_at),
    ended_at = NULL
"""

_END = """
UPDATE worker_sessions FORCE INDEX (uq_worker_sessions_session_id) SET ended_at = UTC_TIMESTAMP(6)
WHERE session_id IN %s AND ended_at IS NULL
"""

_SELECT_SESSION_CREDENTIALS = f"""
SELECT s.session_id, {CREDENTIAL_COLUMNS}
FROM worker_sessions s JOIN credentials c ON c.credential_id = s.credential_id {CREDENTIAL_JOINS}
WHERE s.session_id IN %s
"""


def select_workers(
    tx: Tx, registrations: Sequence[tuple[bytes, bytes, bytes]]
) -> dict[tuple[bytes, bytes, bytes], WorkerRow]:
    """Read registrations by (namespace, credential, worker id); the application lock keeps them still."""
    rows = map(WorkerRow._make, tx.rows(_SELECT_WORKERS, (list(registrations),)))
    return {(row.namespace_id, row.credential_id, row.worker_id): row for row in rows}


def upsert_sessions(tx: Tx, rows: Iterable[SessionRow]) -> None:
    """Store new registrations, and the new sessions of known ones."""
    tx.insert(f"INSERT INTO worker_sessions ({', '.join(SessionRow._fields)})", rows, _TAKE_OVER)


def update_ended(tx: Tx, session_ids: Sequence[bytes]) -> int:
    """Mark sessions as ended; those whose place was taken are no longer found."""
    return tx.execute(_END, (list(session_ids),))


def select_session_credentials(tx: Tx, session_ids: Sequence[bytes]) -> dict[bytes, CredentialRow]:
    """Read the credential behind each session that still speaks for its worker."""
    rows = tx.rows(_SELECT_SESSION_CREDENTIALS, (list(session_ids),))
    return {row[0]: CredentialRow._make(row[1:]) for row in rows}
