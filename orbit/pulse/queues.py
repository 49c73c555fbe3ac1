"""Create and configure queues (02-pulse "Queues").

Management commands are rare, yet take the same path as all others: a list of commands of one application, one
transaction, an outcome for each. The application lock comes first, so there is no race left to lose: neither two
queues of one name nor two configurations of one revision can pass each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbit.domain.errors import NotFound, OrbitError, StateConflict
from orbit.domain.limits import QUEUE_UNFINISHED_DEFAULT, UINT64_MAX
from orbit.kernel.caller import Caller
from orbit.pulse.commands import ConfigureQueue, CreateQueue, QueueAnswer
from orbit.pulse.queue_ledger import QueueLedger
from orbit.pulse.views import QueueView
from orbit.store.sql.applications import lock_application
from orbit.store.sql.queue_admin import (
    NewQueueRow,
    QueueAdminRow,
    insert_queues,
    select_queue_views,
    select_taken_names,
    update_queue_controls,
)
from orbit.store.transaction import Tx


def create_queues(
    tx: Tx, application_id: bytes, commands: Sequence[CreateQueue]
) -> list[QueueAnswer | OrbitError]:
    """Create queues; answer each command with the queue or its refusal.

    Locks: the application. Writes: queues, usage, receipts, state events, audits.
    Refuses: Unauthenticated, IdempotencyConflict, PermissionDenied, StateConflict (the name is taken).
    """
    lock_application(tx, application_id)
    ledger = QueueLedger(tx, application_id, commands)
    pairs = zip(ledger.callers, commands, strict=True)
    asked = {(caller.namespace_id, command.name) for caller, command in pairs if isinstance(caller, Caller)}
    taken = select_taken_names(tx, asked) if asked else set()
    queues: list[NewQueueRow] = []

    def create(caller: Caller, command: CreateQueue) -> QueueView:
        caller.require_all_queues()
        name = (caller.namespace_id, command.name)
        if name in taken:
            raise StateConflict("a queue of this name exists", details={"field": "name"})
        taken.add(name)
        queue = _new_queue(tx, caller, command)
        queues.append(queue)
        view = _view_of_new(queue)
        ledger.record(caller, command, view, was_paused=None, reason="")
        return view

    answers = ledger.answer_each(commands, create)
    insert_queues(tx, queues)
    ledger.flush()
    return answers


def configure_queues(
    tx: Tx, application_id: bytes, commands: Sequence[ConfigureQueue]
) -> list[QueueAnswer | OrbitError]:
    """Replace queues' control values; answer each command with the queue or its refusal. Usage is never reset.

    Locks: the application, the queues. Writes: queues, receipts, state events, audits.
    Refuses: Unauthenticated, IdempotencyConflict, PermissionDenied, NotFound, StateConflict (the revision isn't live).
    """
    lock_application(tx, application_id)
    ledger = QueueLedger(tx, application_id, commands)
    rows = select_queue_views(tx, sorted({command.queue_id for command in commands}))
    changed: dict[bytes, QueueAdminRow] = {}

    def configure(caller: Caller, command: ConfigureQueue) -> QueueView:
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
        ledger.record(caller, command, view, was_paused=row.paused, reason=command.reason)
        return view

    answers = ledger.answer_each(commands, configure)
    update_queue_controls(tx, changed.values())
    ledger.flush()
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
