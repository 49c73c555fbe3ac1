"""What an operator changes outside of any credential: quotas, credentials, applications. Every change is audited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from orbit.domain import limits
from orbit.domain.errors import InvalidArgument, NotFound, StateConflict
from orbit.domain.ids import NO_ID, id_text, new_id
from orbit.domain.permissions import parse_actions
from orbit.domain.tokens import parse_token, same_digest
from orbit.store.sql import provision as sql
from orbit.store.sql.applications import lock_application
from orbit.store.sql.audits import AuditRow, insert_audits
from orbit.store.transaction import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCredential:
    """A new credential: its identity and secret were made, and saved, before. `queues` None means all queues."""

    operation_id: bytes
    application: str
    namespace: str
    token: str
    actions: frozenset[str]
    queues: tuple[str, ...] | None
    expires_in_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateCredential:
    """A new secret for an existing credential; `expires_at` None means that it doesn't expire."""

    operation_id: bytes
    token: str
    expires_at: datetime | None


def find_application(tx: Tx, name: str) -> sql.ApplicationListRow:
    """Return an application by name; raise `NotFound`."""
    for row in sql.select_applications(tx):
        if row.name == name:
            return row
    raise NotFound(f"there is no application {name}")


def set_quotas(
    tx: Tx, name: str, *, max_unfinished: int | None, max_active: int | None, reason: str
) -> sql.ApplicationListRow:
    """Replace the limits that are given and return the row as it is then; usage above a limit stays.

    Locks: the application. Raises: NotFound.
    """
    application_id = find_application(tx, name).application_id
    lock_application(tx, application_id)
    before = find_application(tx, name)
    after = before._replace(
        max_unfinished=before.max_unfinished if max_unfinished is None else max_unfinished,
        max_active=before.max_active if max_active is None else max_active,
    )
    sql.update_quota_limits(
        tx, application_id, max_unfinished=after.max_unfinished, max_active=after.max_active
    )
    details = {"max_unfinished": after.max_unfinished, "max_active": after.max_active}
    _write_audit(
        tx,
        new_id(),
        "admin:quotas",
        "application",
        (application_id, NO_ID, application_id),
        reason=reason,
        details=details,
    )
    return after


def set_application_state(tx: Tx, name: str, *, enabled: bool, reason: str) -> bool:
    """Enable or disable an application; return whether that changed anything.

    From the commit on a disabled application's credentials are refused on every path. Its data stays as it is.

    Locks: the application. Raises: NotFound.
    """
    application_id = find_application(tx, name).application_id
    lock_application(tx, application_id)
    state = "ACTIVE" if enabled else "DISABLED"
    if sql.select_application_state(tx, application_id) == state:
        return False
    sql.update_application_state(tx, application_id, state)
    ids = (application_id, NO_ID, application_id)
    _write_audit(
        tx, new_id(), f"admin:{'enable' if enabled else 'disable'}", "application", ids, reason=reason
    )
    return True


def list_credentials(tx: Tx, application: str) -> list[tuple[str, sql.NewCredential]]:
    """Return (namespace name, credential) of an application, oldest first. Raises: NotFound."""
    namespaces = sql.select_namespaces(tx, find_application(tx, application).application_id)
    names = {row.namespace_id: row.name for row in namespaces}
    return [(names[row.namespace_id], row) for row in sql.select_namespace_credentials(tx, list(names))]


def create_credential(tx: Tx, command: CreateCredential) -> bool:
    """Make a credential; return False when this very operation made it before.

    Locks: the application. Raises: NotFound for an unknown name; InvalidArgument; StateConflict.
    """
    parse_actions(command.actions)
    application_id = find_application(tx, command.application).application_id
    lock_application(tx, application_id)
    namespace_id = _namespace_id(tx, application_id, command.namespace)
    credential_id, digest = _parsed(command.token)
    found = sql.select_credential(tx, credential_id)
    if found is not None:
        if not same_digest(found.token_digest, digest):
            raise StateConflict("the file's credential was rotated since: write to another file")
        return False
    queue_ids = [_queue_id(tx, namespace_id, name) for name in command.queues or ()]
    days = command.expires_in_days
    row = sql.NewCredential(
        credential_id=credential_id,
        application_id=application_id,
        namespace_id=namespace_id,
        token_digest=digest,
        actions=" ".join(sorted(command.actions)),
        all_queues=int(command.queues is None),
        state="ACTIVE",
        expires_at=None if days is None else tx.now + timedelta(days=days),
        revision=1,
        created_at=tx.now,
    )
    sql.insert_credential(tx, row, queue_ids)
    ids = (application_id, namespace_id, credential_id)
    details = {"actions": row.actions, "all_queues": command.queues is None}
    _write_audit(tx, command.operation_id, "admin:create", "credential", ids, details=details)
    return True


def rotate_credential(tx: Tx, command: RotateCredential) -> bool:
    """Replace a credential's token and expiry, keeping its id; return False when this operation did so before.

    The old token is refused from the commit on.

    Locks: the application. Raises: NotFound; StateConflict for a revoked credential.
    """
    credential_id, digest = _parsed(command.token)
    found = _credential(tx, credential_id)
    lock_application(tx, found.application_id)
    if sql.has_audit(tx, command.operation_id):
        return False
    if command.expires_at is not None and command.expires_at <= tx.now:
        raise InvalidArgument("the new expiry has passed", field="expires_at")
    if not sql.replace_token(tx, credential_id, digest, command.expires_at):
        raise StateConflict("the credential is revoked")
    ids = (found.application_id, found.namespace_id, credential_id)
    _write_audit(tx, command.operation_id, "admin:rotate", "credential", ids)
    return True


def revoke_credential(tx: Tx, credential_id: bytes, *, reason: str) -> bool:
    """Revoke a credential for good; return False when it was revoked before. Works in disabled applications too.

    Locks: the application. Raises: NotFound.
    """
    found = _credential(tx, credential_id)
    lock_application(tx, found.application_id)
    if not sql.revoke_credential(tx, credential_id):
        return False
    ids = (found.application_id, found.namespace_id, credential_id)
    _write_audit(tx, new_id(), "admin:revoke", "credential", ids, reason=reason)
    return True


def _credential(tx: Tx, credential_id: bytes) -> sql.NewCredential:
    found = sql.select_credential(tx, credential_id)
    if found is None:
        raise NotFound(f"there is no credential {id_text(credential_id)}")
    return found


def _namespace_id(tx: Tx, application_id: bytes, name: str) -> bytes:
    for row in sql.select_namespaces(tx, application_id):
        if row.name == name:
            return row.namespace_id
    raise NotFound(f"there is no namespace {name}")


def _queue_id(tx: Tx, namespace_id: bytes, name: str) -> bytes:
    found = sql.select_queue_id(tx, namespace_id, name)
    if found is None:
        raise NotFound(f"there is no queue {name}")
    return found


def _parsed(token: str) -> tuple[bytes, bytes]:
    parsed = parse_token(token)
    if parsed is None:
        raise StateConflict("the file holds no token")
    return parsed


def _write_audit(
    tx: Tx,
    audit_id: bytes,
    action: str,
    kind: str,
    ids: tuple[bytes, bytes, bytes],
    *,
    reason: str = "",
    details: Mapping[str, object] | None = None,
) -> None:
    """`ids` are the application, the namespace (or NO_ID) and the resource."""
    application_id, namespace_id, resource_id = ids
    row = AuditRow(
        audit_id=audit_id,
        application_id=application_id,
        namespace_id=namespace_id,
        credential_id=None,
        action=action,
        resource_kind=kind,
        resource_id=resource_id,
        reason=reason[: limits.REASON_MAX_CHARS],
        details=json.dumps(details or {}),
        created_at=tx.now,
    )
    insert_audits(tx, [row])
