"""Applications, namespaces, queues and credentials as operators make and change them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from orbit.store.driver import Row
from orbit.store.sql.events import StateEventRow, insert_state_events
from orbit.store.sql.queue_admin import NewQueueRow, insert_queues
from orbit.store.transaction import Rank, Tx


class ApplicationListRow(NamedTuple):
    application_id: bytes
    name: str
    state: str
    created_at: datetime
    max_unfinished: int
    max_active: int
    unfinished: int
    active: int


class NamespaceRow(NamedTuple):
    namespace_id: bytes
    application_id: bytes
    name: str
    environment: str
    state: str


class NewCredential(NamedTuple):
    """A credential's row, in the order of its columns."""

    credential_id: bytes
    application_id: bytes
    namespace_id: bytes
    token_digest: bytes
    actions: str
    all_queues: int
    state: str
    expires_at: datetime | None
    revision: int
    created_at: datetime


def enter_application(
    tx: Tx, application_id: bytes, name: str, *, max_unfinished: int, max_active: int
) -> bytes:
    """Make the application of this name unless it exists, take its write lock, and return its id.

    Locks: the application's row, then its quota row (rank 1); `tx.now` is read under them.
    """
    tx.enter(Rank.APPLICATION)
    # An upsert waits for a concurrent maker of the same name, and a plain read then sees that one's row.
    tx.execute(
        "INSERT INTO applications (application_id, name, state, created_at)"
        " VALUES (%s, %s, 'ACTIVE', UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE name = name",
        (application_id, name),
    )
    found: bytes = tx.value("SELECT application_id FROM applications WHERE name = %s", (name,))
    tx.execute(
        "INSERT INTO application_quotas"
        " (application_id, max_unfinished, max_active, unfinished, active, row_version)"
        " VALUES (%s, %s, %s, 0, 0, 1) ON DUPLICATE KEY UPDATE row_version = row_version + 1",
        (found, max_unfinished, max_active),
    )
    tx.read_clock(tx.value("SELECT UTC_TIMESTAMP(6)"))
    return found


def select_application_state(tx: Tx, application_id: bytes) -> str | None:
    found: str | None = tx.value(
        "SELECT state FROM applications WHERE application_id = %s", (application_id,)
    )
    return found


def select_names(tx: Tx, application_id: bytes, namespace_id: bytes, queue_id: bytes) -> Row:
    """Read the names under which three ids are in use, None for one that isn't."""
    sql = """
        SELECT (SELECT name FROM applications WHERE application_id = %s),
               (SELECT name FROM namespaces WHERE namespace_id = %s),
               (SELECT name FROM queues WHERE queue_id = %s)
    """
    row = tx.row(sql, (application_id, namespace_id, queue_id))
    assert row is not None
    return row


def select_applications(tx: Tx) -> list[ApplicationListRow]:
    """Read every application with its limits and usage, by name."""
    sql = """
        SELECT a.application_id, a.name, a.state, a.created_at,
               q.max_unfinished, q.max_active, q.unfinished, q.active
        FROM applications a JOIN application_quotas q ON q.application_id = a.application_id
        ORDER BY a.name
    """
    return [ApplicationListRow._make(row) for row in tx.rows(sql)]


def update_application_state(tx: Tx, application_id: bytes, state: str) -> int:
    return tx.execute("UPDATE applications SET state = %s WHERE application_id = %s", (state, application_id))


def update_quota_limits(tx: Tx, application_id: bytes, *, max_unfinished: int, max_active: int) -> None:
    """Replace an application's limits; usage stays."""
    tx.execute(
        "UPDATE application_quotas SET max_unfinished = %s, max_active = %s WHERE application_id = %s",
        (max_unfinished, max_active, application_id),
    )


def select_namespaces(tx: Tx, application_id: bytes) -> list[NamespaceRow]:
    sql = """
        SELECT namespace_id, application_id, name, environment, state FROM namespaces
        WHERE application_id = %s ORDER BY name
    """
    return [NamespaceRow._make(row) for row in tx.rows(sql, (application_id,))]


def insert_namespace(tx: Tx, row: NamespaceRow) -> None:
    """Insert a namespace with its result stream; the application lock is held."""
    tx.execute(
        "INSERT INTO namespaces (namespace_id, application_id, name, environment, state, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        (*row, tx.now),
    )
    tx.execute(
        "INSERT INTO namespace_streams (namespace_id, last_sequence) VALUES (%s, 0)", (row.namespace_id,)
    )


def select_queue_id(tx: Tx, namespace_id: bytes, name: str) -> bytes | None:
    found: bytes | None = tx.value(
        "SELECT queue_id FROM queues WHERE namespace_id = %s AND name = %s", (namespace_id, name)
    )
    return found


def insert_queue(tx: Tx, row: NewQueueRow) -> None:
    """Insert a queue with its usage and its first state event; the application lock is held."""
    insert_queues(tx, [row])
    insert_state_events(
        tx, [StateEventRow(row.queue_id, 1, row.namespace_id, "queue", None, "ACTIVE", row.created_at)]
    )


def select_credential(tx: Tx, credential_id: bytes) -> NewCredential | None:
    sql = f"SELECT {', '.join(NewCredential._fields)} FROM credentials WHERE credential_id = %s"
    row = tx.row(sql, (credential_id,))
    return None if row is None else NewCredential._make(row)


def select_namespace_credentials(tx: Tx, namespace_ids: Sequence[bytes]) -> list[NewCredential]:
    """Read the credentials of these namespaces, oldest first."""
    if not namespace_ids:
        return []
    sql = f"""
        SELECT {", ".join(NewCredential._fields)} FROM credentials
        WHERE namespace_id IN %s ORDER BY created_at, credential_id
    """
    return [NewCredential._make(row) for row in tx.rows(sql, (list(namespace_ids),))]


def insert_credential(tx: Tx, row: NewCredential, queue_ids: Iterable[bytes]) -> None:
    _insert(tx, "credentials", NewCredential._fields, [row])
    _insert(
        tx,
        "credential_queues",
        ("credential_id", "queue_id"),
        [(row.credential_id, queue_id) for queue_id in sorted(queue_ids)],
    )


def revoke_credential(tx: Tx, credential_id: bytes) -> int:
    """Revoke a credential and return 1, or 0 when it was revoked before; its digest and scope stay."""
    sql = """
        UPDATE credentials SET state = 'REVOKED', revision = revision + 1
        WHERE credential_id = %s AND state = 'ACTIVE'
    """
    return tx.execute(sql, (credential_id,))


def replace_token(tx: Tx, credential_id: bytes, digest: bytes, expires_at: datetime | None) -> int:
    """Replace an active credential's digest and expiry; return 0 when it isn't active."""
    sql = """
        UPDATE credentials SET token_digest = %s, expires_at = %s, revision = revision + 1
        WHERE credential_id = %s AND state = 'ACTIVE'
    """
    return tx.execute(sql, (digest, expires_at, credential_id))


def has_audit(tx: Tx, audit_id: bytes) -> bool:
    return bool(tx.value("SELECT COUNT(*) FROM audits WHERE audit_id = %s", (audit_id,)))


def _insert(tx: Tx, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    tx.insert(f"INSERT INTO {table} ({', '.join(columns)})", rows)
