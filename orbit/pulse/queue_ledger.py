"""What the management commands of queues share: who asks, replays, and what each leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from orbit.domain.digest import command_digest
from orbit.domain.errors import InvariantViolation, OrbitError
from orbit.domain.ids import new_id
from orbit.domain.limits import RECEIPT_BODY_MAX_BYTES
from orbit.domain.permissions import QUEUES_MANAGE
from orbit.kernel.caller import Caller
from orbit.kernel.idempotency import read_receipts, replayed
from orbit.kernel.identity import read_callers
from orbit.pulse.commands import ConfigureQueue, CreateQueue, QueueAnswer
from orbit.pulse.views import QueueView
from orbit.store.sql.audits import AuditRow, insert_audits
from orbit.store.sql.events import StateEventRow, insert_state_events
from orbit.store.sql.receipts import ReceiptRow, insert_receipts
from orbit.store.transaction import Tx

_KIND: Final = "queue"
_ACTIVE: Final = "ACTIVE"
_PAUSED: Final = "PAUSED"

Command = TypeVar("Command", CreateQueue, ConfigureQueue)
AnyCommand = CreateQueue | ConfigureQueue


class QueueLedger:
    """One transaction's management commands: judged in order, recorded at the end.

    The application lock must be held. `callers` are those of the commands, in order.
    """

    def __init__(self, tx: Tx, application_id: bytes, commands: Sequence[AnyCommand]) -> None:
        self._tx = tx
        self._application_id = application_id
        found = read_callers(tx, [command.token for command in commands])
        self.callers = [self._of_application(found[command.token]) for command in commands]
        self._known = read_receipts(tx, found, commands, QUEUES_MANAGE)
        self._receipts: list[ReceiptRow] = []
        self._events: list[StateEventRow] = []
        self._audits: list[AuditRow] = []

    def answer_each(
        self, commands: Sequence[Command], apply: Callable[[Caller, Command], QueueView]
    ) -> list[QueueAnswer | OrbitError]:
        """Judge each command: replay, then permission, then `apply`, which makes the change or raises the refusal."""
        answers: list[QueueAnswer | OrbitError] = []
        for caller, command in zip(self.callers, commands, strict=True):
            try:
                answers.append(self._judge(caller, command, apply))
            except OrbitError as refusal:
                answers.append(refusal)
        return answers

    def record(
        self, caller: Caller, command: AnyCommand, view: QueueView, *, was_paused: bool | None, reason: str
    ) -> None:
        """Note a change: its state event and its audit."""
        now, state = self._tx.now, _PAUSED if view.paused else _ACTIVE
        before = None if was_paused is None else _PAUSED if was_paused else _ACTIVE
        self._events.append(
            StateEventRow(view.queue_id, view.revision, view.namespace_id, _KIND, before, state, now)
        )
        self._audits.append(
            AuditRow(
                audit_id=new_id(),
                application_id=caller.application_id,
                namespace_id=view.namespace_id,
                credential_id=caller.credential_id,
                action=QUEUES_MANAGE,
                resource_kind=_KIND,
                resource_id=view.queue_id,
                reason=reason,
                details=_details(command, view),
                created_at=now,
            )
        )

    def flush(self) -> None:
        """Store what was recorded."""
        insert_state_events(self._tx, self._events)
        insert_audits(self._tx, self._audits)
        insert_receipts(self._tx, self._receipts)

    def _judge(
        self, caller: Caller | OrbitError, command: Command, apply: Callable[[Caller, Command], QueueView]
    ) -> QueueAnswer:
        if isinstance(caller, OrbitError):
            raise caller
        identity, digest = caller.identity(QUEUES_MANAGE, command.idempotency_key), _digest(command)
        receipt = replayed(self._known.get(identity), digest)
        caller.require(QUEUES_MANAGE)
        if receipt is not None:
            return self._replay(caller, command, receipt)
        view = apply(caller, command)
        receipt = ReceiptRow(
            identity, self._application_id, digest, view.queue_id, _freeze(view), self._tx.now
        )
        self._known[identity] = receipt
        self._receipts.append(receipt)
        return QueueAnswer(deduplicated=False, queue=view)

    def _replay(self, caller: Caller, command: AnyCommand, receipt: ReceiptRow) -> QueueAnswer:
        view = _thaw(receipt)
        caller.require_visible(view.namespace_id, view.queue_id, "queue")
        # After a COMMIT without an answer the receipt may be this very command's.
        is_own = self._tx.resolving and receipt.resource_id == command.queue_id
        return QueueAnswer(deduplicated=not is_own, queue=view)

    def _of_application(self, caller: Caller | OrbitError) -> Caller | OrbitError:
        if isinstance(caller, Caller) and caller.application_id != self._application_id:
            return InvariantViolation("a command was routed to another application")
        return caller


def _digest(command: AnyCommand) -> bytes:
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


def _details(command: AnyCommand, view: QueueView) -> str:
    details = {
        "operation": "create" if isinstance(command, CreateQueue) else "configure",
        "revision": str(view.revision),
        "paused": view.paused,
        "max_concurrency": view.max_concurrency,
        "rate_per_second": view.rate_per_second,
        "max_unfinished_tasks": view.max_unfinished_tasks,
    }
    return msgspec.json.encode(details).decode()


def _freeze(view: QueueView) -> bytes:
    body = msgspec.msgpack.encode(view)
    if len(body) > RECEIPT_BODY_MAX_BYTES:
        raise InvariantViolation("a queue's receipt outgrew its column")
    return body


def _thaw(receipt: ReceiptRow) -> QueueView:
    if receipt.body is None:
        raise InvariantViolation("a queue's receipt lost its body")
    return msgspec.msgpack.decode(receipt.body, type=QueueView)
