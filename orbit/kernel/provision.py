"""The first application, namespace, queue and credential, made once or found again (06-operations, `bootstrap`)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orbit.domain import limits
from orbit.domain.errors import StateConflict
from orbit.domain.ids import id_text, new_id
from orbit.domain.keys import check_name
from orbit.domain.permissions import parse_actions
from orbit.domain.tokens import make_token, parse_token, same_digest
from orbit.store.sql import provision as sql
from orbit.store.sql.audits import AuditRow, insert_audits
from orbit.store.sql.queue_admin import NewQueueRow
from orbit.store.transaction import Tx

INITIAL_CONCURRENCY = 100
INITIAL_RATE = 1_000
_OTHER_NAMES = "the file's ids belong to other names than those asked for, or to another database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What to make or find: names, the actions of the credential, and the limits of a queue that is made.

    Without `must_match_actions` a credential that exists already may have other actions.
    """

    application: str
    namespace: str
    environment: str
    queue: str
    actions: frozenset[str]
    max_concurrency: int = INITIAL_CONCURRENCY
    rate_per_second: int = INITIAL_RATE
    max_unfinished_tasks: int = limits.QUEUE_UNFINISHED_DEFAULT
    must_match_actions: bool = True

    def check(self) -> None:
        """Raise `InvalidArgument` for a malformed name, an unknown action or a limit out of range."""
        parse_actions(self.actions)
        check_name(self.application, "application", max_chars=limits.APPLICATION_NAME_MAX_CHARS)
        check_name(self.namespace, "namespace", max_chars=limits.NAMESPACE_NAME_MAX_CHARS)
        check_name(self.environment, "environment", max_chars=limits.ENVIRONMENT_MAX_CHARS)
        check_name(self.queue, "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One bootstrap: its identity, the secret it hands out and the ids it fixes. Kept in a file, never in a log."""

    operation_id: bytes
    credential_id: bytes
    token: str
    application_id: bytes
    namespace_id: bytes
    queue_id: bytes


def bootstrap(tx: Tx, command: Bootstrap, saved: Operation | None) -> tuple[Operation, bool]:
    """Make what is missing under these names; return the operation, and whether it made its credential now.

    `saved` is the operation of an earlier call, whose outcome may be unknown: its ids and token are used again, and
    nothing happens if it was committed.

    Locks: the application. Writes: application, quota, namespace, stream, queue, usage, credential, audit, event.
    Raises: InvalidArgument (before anything is written); StateConflict where names, ids and actions disagree.
    """
    command.check()
    if saved is not None:
        _check_names(tx, command, saved)
    fresh = saved or _new_operation()
    application_id = sql.enter_application(
        tx,
        fresh.application_id,
        command.application,
        max_unfinished=limits.QUOTA_UNFINISHED_DEFAULT,
        max_active=limits.QUOTA_ACTIVE_DEFAULT,
    )
    if sql.select_application_state(tx, application_id) != "ACTIVE":
        raise StateConflict(f"the application {command.application} is disabled")
    namespace_id = _find_or_make_namespace(tx, application_id, command, fresh.namespace_id)
    queue_id = _find_or_make_queue(tx, application_id, namespace_id, command, fresh.queue_id)
    found = Operation(
        operation_id=fresh.operation_id,
        credential_id=fresh.credential_id,
        token=fresh.token,
        application_id=application_id,
        namespace_id=namespace_id,
        queue_id=queue_id,
    )
    if saved is not None and found != saved:
        raise StateConflict(_OTHER_NAMES)
    return found, _find_or_make_credential(tx, command, found)


def _check_names(tx: Tx, command: Bootstrap, saved: Operation) -> None:
    """Refuse a file whose ids are in use under other names; names never change, so this needs no lock."""
    found = sql.select_names(tx, saved.application_id, saved.namespace_id, saved.queue_id)
    wanted = (command.application, command.namespace, command.queue)
    if any(name not in (None, want) for name, want in zip(found, wanted, strict=True)):
        raise StateConflict(_OTHER_NAMES)


def _new_operation() -> Operation:
    credential_id, token, _ = make_token()
    return Operation(
        operation_id=new_id(),
        credential_id=credential_id,
        token=token,
        application_id=new_id(),
        namespace_id=new_id(),
        queue_id=new_id(),
    )


def _find_or_make_namespace(tx: Tx, application_id: bytes, command: Bootstrap, namespace_id: bytes) -> bytes:
    for row in sql.select_namespaces(tx, application_id):
        if row.name == command.namespace:
            if row.environment != command.environment:
                raise StateConflict(f"the namespace {row.name} has the environment {row.environment}")
            if row.state != "ACTIVE":
                raise StateConflict(f"the namespace {row.name} is disabled")
            return row.namespace_id
    sql.insert_namespace(
        tx, sql.NamespaceRow(namespace_id, application_id, command.namespace, command.environment, "ACTIVE")
    )
    return namespace_id


def _find_or_make_queue(
    tx: Tx, application_id: bytes, namespace_id: bytes, command: Bootstrap, queue_id: bytes
) -> bytes:
    found = sql.select_queue_id(tx, namespace_id, command.queue)
    if found is not None:
        return found
    row = NewQueueRow(
        queue_id=queue_id,
        application_id=application_id,
        namespace_id=namespace_id,
        name=command.queue,
        paused=False,
        max_concurrency=command.max_concurrency,
        rate_per_second=command.rate_per_second,
        max_unfinished_tasks=command.max_unfinished_tasks,
        revision=1,
        created_at=tx.now,
        updated_at=tx.now,
    )
    sql.insert_queue(tx, row)
    return queue_id


def _find_or_make_credential(tx: Tx, command: Bootstrap, operation: Operation) -> bool:
    parsed = parse_token(operation.token)
    if parsed is None or parsed[0] != operation.credential_id:
        raise StateConflict("the file's token isn't the one of its credential")
    actions = " ".join(sorted(command.actions))
    found = sql.select_credential(tx, operation.credential_id)
    if found is not None:
        if not same_digest(found.token_digest, parsed[1]) or found.state != "ACTIVE":
            raise StateConflict("the file's credential was rotated or revoked: write to another file")
        if command.must_match_actions and found.actions != actions:
            raise StateConflict("the file's credential has other actions: write to another file")
        return False
    credential = sql.NewCredential(
        credential_id=operation.credential_id,
        application_id=operation.application_id,
        namespace_id=operation.namespace_id,
        token_digest=parsed[1],
        actions=actions,
        all_queues=1,
        state="ACTIVE",
        expires_at=None,
        revision=1,
        created_at=tx.now,
    )
    sql.insert_credential(tx, credential, ())
    insert_audits(tx, [_audit(tx, command, operation, actions)])
    return True


def _audit(tx: Tx, command: Bootstrap, operation: Operation, actions: str) -> AuditRow:
    details = {
        "application": command.application,
        "namespace": command.namespace,
        "queue_id": id_text(operation.queue_id),
        "actions": actions,
    }
    return AuditRow(
        audit_id=operation.operation_id,
        application_id=operation.application_id,
        namespace_id=operation.namespace_id,
        credential_id=None,
        action="admin:bootstrap",
        resource_kind="credential",
        resource_id=operation.credential_id,
        reason="",
        details=json.dumps(details),
        created_at=tx.now,
    )
