"""From presented tokens to callers, read anew inside every command's transaction: no cache decides."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from datetime import datetime

from orbit.domain.errors import OrbitError, Unauthenticated
from orbit.domain.permissions import ALL_QUEUES, Scope
from orbit.kernel.caller import Caller, Token
from orbit.store.sql.access import CredentialRow, read_credentials, select_credential_queues
from orbit.store.transaction import Read, Tx


def read_callers(tx: Tx, tokens: Iterable[Token]) -> dict[Token, Caller | OrbitError]:
    """Return the caller behind each token, or `Unauthenticated`; one batched read (two with scoped credentials)."""
    wanted = set(tokens)
    found = tx.read(credentials_of(wanted))
    return judge_callers(tx, wanted, found)


def credentials_of(tokens: Iterable[Token]) -> Read[list[CredentialRow]]:
    """Return the read that `judge_callers` needs, to be gathered with others."""
    return read_credentials(sorted({token.credential_id for token in tokens}))


def judge_callers(
    tx: Tx, tokens: Iterable[Token], found: Iterable[CredentialRow]
) -> dict[Token, Caller | OrbitError]:
    """Tell who may speak; reads the queues of scoped credentials, if there are any."""
    rows = {row.credential_id: row for row in found}
    scoped = [row.credential_id for row in rows.values() if not row.all_queues]
    queues: dict[bytes, set[bytes]] = {credential_id: set() for credential_id in scoped}
    for credential_id, queue_id in select_credential_queues(tx, scoped) if scoped else ():
        queues[credential_id].add(queue_id)
    return {token: _judge(token, rows.get(token.credential_id), queues, tx.now) for token in set(tokens)}


def read_caller(tx: Tx, token: Token) -> Caller:
    """Return the caller behind one token.

    Raises:
        Unauthenticated: unknown, replaced, revoked or expired credential, or a disabled application or namespace.
    """
    found = read_callers(tx, [token])[token]
    if isinstance(found, OrbitError):
        raise found
    return found


def is_valid(row: CredentialRow, now: datetime) -> bool:
    """Tell whether a credential may be used now, its token apart."""
    return row.state == row.application_state == row.namespace_state == "ACTIVE" and (
        row.expires_at is None or row.expires_at > now
    )


def _judge(
    token: Token, row: CredentialRow | None, queues: dict[bytes, set[bytes]], now: datetime
) -> Caller | OrbitError:
    if row is None or not hmac.compare_digest(row.token_digest, token.digest) or not is_valid(row, now):
        return Unauthenticated("the credential is unknown, expired or revoked")
    return Caller(
        credential_id=row.credential_id,
        application_id=row.application_id,
        namespace_id=row.namespace_id,
        actions=frozenset(row.actions.split()),
        scope=ALL_QUEUES if row.all_queues else Scope(queues=frozenset(queues[row.credential_id])),
    )
