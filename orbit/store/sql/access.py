"""Reads of credentials with the state of their application and namespace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbit.store.transaction import Read, Tx, read_in


class CredentialRow(NamedTuple):
    """A credential joined with its application's and namespace's state."""

    credential_id: bytes
    application_id: bytes
    namespace_id: bytes
    token_digest: bytes
    actions: str
    all_queues: int
    state: str
    expires_at: datetime | None
    application_state: str
    namespace_state: str


# A `CredentialRow` of the credential `c`, joined with its application and namespace.
CREDENTIAL_COLUMNS = """
c.credential_id, c.application_id, c.namespace_id, c.token_digest, c.actions, c.all_queues, c.state, c.expires_at,
a.state, n.state
"""
CREDENTIAL_JOINS = """
JOIN applications a ON a.application_id = c.application_id
JOIN namespaces n ON n.namespace_id = c.namespace_id
"""

_SELECT_CREDENTIALS = f"""
SELECT {CREDENTIAL_COLUMNS} FROM credentials c {CREDENTIAL_JOINS} WHERE c.credential_id IN %s
"""


def read_credentials(credential_ids: Sequence[bytes]) -> Read[list[CredentialRow]]:
    """Read credentials by id; takes no locks."""
    return read_in(
        _SELECT_CREDENTIALS, credential_ids, lambda rows: [CredentialRow._make(row) for row in rows]
    )


def select_credential_queues(tx: Tx, credential_ids: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Read (credential, queue) pairs of scoped credentials."""
    sql = "SELECT credential_id, queue_id FROM credential_queues WHERE credential_id IN %s"
    return [(row[0], row[1]) for row in tx.rows(sql, (list(credential_ids),))]
