"""Create and configure queues (02-pulse "Queues").

Management commands are rare, yet take the same path as all others: a list of commands of one application, one
transaction, an outcome for each. The application lock comes first, so there is no race left to lose: neither two
queues of one name nor two configurations of one revision can pass each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from orbit.domain.digest import command_digest, receipt_id
from orbit.domain.errors import InvariantViolation, NotFound, OrbitError, StateConflict
from orbit.domain.ids import new_id
from orbit.domain.limits import QUEUE_UNFINISHED_DEFAULT, RECEIPT_BODY_MAX_BYTES, UINT64_MAX
from orbit.domain.permissions import QUEUES_MANAGE
from orbit.kernel.caller import Caller
from orbit.kernel.idempotency import replayed
from orbit.kernel.identity import read_callers
from orbit.pulse.commands import ConfigureQueue, CreateQueue, QueueAnswer
from orbit.pulse.views import QueueView
from orbit.store.sql.applications import lock_application
from orbit.store.sql.audits import AuditRow, insert_audits
from orbit.store.sql.events import StateEventRow, insert_state_events
from orbit.store.sql.queue_admin import (
    NewQueueRow,
    QueueAdminRow,
    insert_queues,
    select_queue_views,
    select_taken_names,
    update_queue_controls,
)
from orbit.store.sql.receipts import ReceiptRow, insert_receipts, select_receipts
from orbit.store.transaction import Tx

_KIND: Final = "queue"
_ACTIVE: Final = "ACTIVE"
_PAUSED: Final = "PAUSED"

Command = TypeVar("Command", CreateQueue, ConfigureQueue)


@dataclass(slots=True)
class _Writes:
    """What the commands of one transaction leave behind."""

    receipts: list[ReceiptRow]
    events: list[StateEventRow]
    audits: list[AuditRow]


class _Identities:
    """The receipts of a list of commands, as stored and as made by earlier commands of the same list."""

    def __init__(self, tx: Tx, identities: Sequence[bytes | None]) -> None:
        wanted = sorted({identity for identity in identities if identity is not None})
        self._found = select_receipts(tx, wanted) if wanted else {}
        self._stored = frozenset(self._found)
        self._resolving = tx.resolving

    def replay(self, identity: bytes, digest: bytes) -> ReceiptRow | None:
        return replayed(self._found.get(identity), digest)

    def is_own(self, receipt: ReceiptRow, resource_id: bytes) -> bool:
        """Tell whether an earlier, unanswered run of this very command left the receipt."""
        return self._resolving and receipt.receipt_id in self._stored and receipt.resource_id == resource_id

    def add(self, receipt: ReceiptRow) -> None:
        self._found[receipt.receipt_id] = receipt


def create_queues(
    tx: Tx, application_id: bytes, commands: Sequence[CreateQueue]
) -> list[QueueAnswer | OrbitError]:
    """Create queues; answer each command with the queue or its refusal.

    Locks: the application. Writes: queues, usage, receipts, state events, audits.
    Refuses: Unauthenticated, IdempotencyConflict, PermissionDenied, StateConflict (the name is taken).
    """
    lock_application(tx, application_id)
    names: set[tuple[bytes, str]] = set()
    queues: list[NewQueueRow] = []

    def create(caller: Caller, command: CreateQueue, writes: _Writes) -> QueueView:
        caller.require_all_queues()
        name = (caller.namespace_id, command.name)
        if name in names:
            raise StateConflict("a queue of this name exists", details={"field": "name"})
        names.add(name)
        queue = _new_queue(tx, caller, command)
        queues.append(queue)
        view = _view_of_new(queue)
        _record(tx, writes, caller, command, view, from_state=None, reason="")
        return view

    def prepare(callers: Sequence[Caller | OrbitError]) -> None:
        asked = {
            (caller.namespace_id, command.name)
            for caller, command in zip(callers, commands, strict=True)
            if isinstance(caller, Caller)
        }
        names.update(select_taken_names(tx, asked) if asked else ())

    answers, writes = _run(tx, application_id, commands, prepare, create)
    if queues:
        insert_queues(tx, queues)
    _write(tx, writes)
    return answers


def configure_queues(
    tx: Tx, application_id: bytes, commands: Sequence[ConfigureQueue]
) -> list[QueueAnswer | OrbitError]:
    """Replace queues' control values; answer each command with the queue or its refusal. Usage is never reset.

    Locks: the application, the queues. Writes: queues, receipts, state events, audits.
    Refuses: Unauthenticated, IdempotencyConflict, PermissionDenied, NotFound, StateConflict (the revision isn't live).
    """
    lock_application(tx, application_id)
    rows: dict[bytes, QueueAdminRow] = {}
    changed: dict[bytes, QueueAdminRow] = {}

    def configure(caller: Caller, command: ConfigureQueue, writes: _Writes) -> QueueView:
        row = rows.get(command.queue_id)
        if row is None or not caller.may_see(row.namespace_id, row.queue_id):
            raise NotFound("queue not found")
        if row.revision != command.expected_revision or row.revision == UINT64_MAX:
            raise StateConflict(
                f"the queue is at revision {row.revision}", details={"field": "expected_revision"}
            )
        after = row._replace(
            paused=command.paused,
            max_concurrency=command.max_concurrency,
            rate_per_second=command.rate_per_second,
            max_unfinished_tasks=command.max_unfinished_tasks,
            revision=row.revision + 1,
        )
        rows[command.queue_id] = changed[command.queue_id] = after
        view = view_of_queue(after)
        _record(tx, writes, caller, command, view, from_state=_state(row.paused), reason=command.reason)
        return view

    def prepare(_: Sequence[Caller | OrbitError]) -> None:
        rows.update(select_queue_views(tx, sorted({command.queue_id for command in commands})))

    answers, writes = _run(tx, application_id, commands, prepare, configure)
    update_queue_controls(tx, changed.values())
    _write(tx, writes)
    return answers


def view_of_queue(row: QueueAdminRow) -> QueueView:
    return QueueView(
        queue_id=row.queue_id,
        namespace_id=row.namespace_id,
        name=row.name,
        paused=row.paused,
        max_concurrency=row.max_concurrency,
        rate_per_second=row.rate_per_second,
        max_unfinished_tasks=row.max_unfinished_tasks,
        unfinished_tasks=row.unfinished,
        revision=row.revision,
    )


def _run(
    tx: Tx,
    application_id: bytes,
    commands: Sequence[Command],
    prepare: Callable[[Sequence[Caller | OrbitError]], None],
    apply: Callable[[Caller, Command, _Writes], QueueView],
) -> tuple[list[QueueAnswer | OrbitError], _Writes]:
    """Judge each command in order: replay, then permission, then its own rules."""
    found = read_callers(tx, [command.token for command in commands])
    callers = [_of_application(found[command.token], application_id) for command in commands]
    identities = _Identities(
        tx, [_identity(caller, command) for caller, command in zip(callers, commands, strict=True)]
    )
    prepare(callers)
    writes = _Writes([], [], [])

    def judge(caller: Caller | OrbitError, command: Command) -> QueueAnswer:
        if isinstance(caller, OrbitError):
            raise caller
        identity, digest = _identity_of(caller, command), _digest(command)
        receipt = identities.replay(identity, digest)
        caller.require(QUEUES_MANAGE)
        if receipt is not None:
            view = _thaw(receipt)
            caller.require_visible(view.namespace_id, view.queue_id, "queue")
            return QueueAnswer(deduplicated=not identities.is_own(receipt, command.queue_id), queue=view)
        view = apply(caller, command, writes)
        receipt = ReceiptRow(identity, application_id, digest, view.queue_id, _freeze(view), tx.now)
        identities.add(receipt)
        writes.receipts.append(receipt)
        return QueueAnswer(deduplicated=False, queue=view)

    answers: list[QueueAnswer | OrbitError] = []
    for caller, command in zip(callers, commands, strict=True):
        try:
            answers.append(judge(caller, command))
        except OrbitError as refusal:
            answers.append(refusal)
    return answers, writes


def _of_application(caller: Caller | OrbitError, application_id: bytes) -> Caller | OrbitError:
    if isinstance(caller, Caller) and caller.application_id != application_id:
        return InvariantViolation("a command was routed to another application")
    return caller


def _identity(caller: Caller | OrbitError, command: CreateQueue | ConfigureQueue) -> bytes | None:
    return None if isinstance(caller, OrbitError) else _identity_of(caller, command)


def _identity_of(caller: Caller, command: CreateQueue | ConfigureQueue) -> bytes:
    return receipt_id(caller.application_id, caller.namespace_id, QUEUES_MANAGE, command.idempotency_key)


def _digest(command: CreateQueue | ConfigureQueue) -> bytes:
    limits = [
        ("max_concurrency", command.max_concurrency),
        ("rate_per_second", command.rate_per_second),
        ("max_unfinished_tasks", command.max_unfinished_tasks or None),
    ]
    if isinstance(command, CreateQueue):
        return command_digest("queues:create", [("name", command.name), *limits])
    return command_digest(
        "queues:configure",
        [
            ("queue_id", command.queue_id),
            ("expected_revision", command.expected_revision),
            ("reason", command.reason),
            ("paused", command.paused),
            *limits,
        ],
    )


def _new_queue(tx: Tx, caller: Caller, command: CreateQueue) -> NewQueueRow:
    return NewQueueRow(
        queue_id=command.queue_id,
        application_id=caller.application_id,
        namespace_id=caller.namespace_id,
        name=command.name,
        paused=False,
        max_concurrency=command.max_concurrency,
        rate_per_second=command.rate_per_second,
        max_unfinished_tasks=command.max_unfinished_tasks or QUEUE_UNFINISHED_DEFAULT,
        revision=1,
        created_at=tx.now,
        updated_at=tx.now,
    )


def _view_of_new(queue: NewQueueRow) -> QueueView:
    return QueueView(
        queue_id=queue.queue_id,
        namespace_id=queue.namespace_id,
        name=queue.name,
        paused=queue.paused,
        max_concurrency=queue.max_concurrency,
        rate_per_second=queue.rate_per_second,
        max_unfinished_tasks=queue.max_unfinished_tasks,
        unfinished_tasks=0,
        revision=queue.revision,
    )


def _record(
    tx: Tx,
    writes: _Writes,
    caller: Caller,
    command: CreateQueue | ConfigureQueue,
    view: QueueView,
    *,
    from_state: str | None,
    reason: str,
) -> None:
    writes.events.append(
        StateEventRow(
            view.queue_id, view.revision, view.namespace_id, _KIND, from_state, _state(view.paused), tx.now
        )
    )
    details = {
        "operation": "create" if isinstance(command, CreateQueue) else "configure",
        "revision": str(view.revision),
        "paused": view.paused,
        "max_concurrency": view.max_concurrency,
        "rate_per_second": view.rate_per_second,
        "max_unfinished_tasks": view.max_unfinished_tasks,
    }
    writes.audits.append(
        AuditRow(
            audit_id=new_id(),
            application_id=caller.application_id,
            namespace_id=view.namespace_id,
            credential_id=caller.credential_id,
            action=QUEUES_MANAGE,
            resource_kind=_KIND,
            resource_id=view.queue_id,
            reason=reason,
            details=msgspec.json.encode(details).decode(),
            created_at=tx.now,
        )
    )


def _write(tx: Tx, writes: _Writes) -> None:
    insert_state_events(tx, writes.events)
    insert_audits(tx, writes.audits)
    insert_receipts(tx, writes.receipts)


def _state(paused: bool) -> str:  # noqa: FBT001 - a state's name
    return _PAUSED if paused else _ACTIVE


def _freeze(view: QueueView) -> bytes:
    body = msgspec.msgpack.encode(view)
    if len(body) > RECEIPT_BODY_MAX_BYTES:
        raise InvariantViolation("a queue's receipt outgrew its column")
    return body


def _thaw(receipt: ReceiptRow) -> QueueView:
    if receipt.body is None:
        raise InvariantViolation("a queue's receipt lost its body")
    return msgspec.msgpack.decode(receipt.body, type=QueueView)
