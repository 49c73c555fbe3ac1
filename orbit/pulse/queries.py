"""What callers may read: queues, tasks, attempts, dispatchers (02-pulse).

Each function authorises inside itself, from the credential as it is now: a missing action is PermissionDenied, what
lies outside the caller's namespace or queue scope is NotFound. Filters, order and bounds are SQL's work on an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orbit.domain import cursor
from orbit.domain.errors import NotFound, PermissionDenied
from orbit.domain.keys import key_digest
from orbit.domain.permissions import QUEUES_READ, TASKS_READ, WORKERS_CONNECT, WORKERS_READ
from orbit.domain.states import AttemptState, TaskState
from orbit.kernel.caller import Caller, Token
from orbit.kernel.identity import read_caller
from orbit.pulse.paging import Page, make_page, read_position
from orbit.pulse.queues import view_of_queue
from orbit.pulse.snapshots import current, task_view
from orbit.pulse.views import AttemptView, EvidenceView, QueueView, TaskDetail, TaskView
from orbit.store.sql.attempt_lists import (
    AttemptHistoryRow,
    EvidenceRow,
    page_attempts,
    select_attempt,
    select_evidence,
    select_output,
)
from orbit.store.sql.dispatcher_lists import DispatcherRow, select_live_dispatchers
from orbit.store.sql.queue_admin import page_queues, select_queue_by_name, select_queue_views
from orbit.store.sql.task_lists import TaskPage, page_tasks
from orbit.store.sql.tasks import TaskRow, select_payloads, select_tasks
from orbit.store.transaction import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueues:
    limit: int
    name: str | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks:
    """`created_from` is inclusive, `created_before` exclusive; both naive UTC."""

    queue_id: bytes
    limit: int
    state: TaskState | None = None
    business_key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAttempts:
    task_id: bytes
    limit: int
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherView:
    dispatcher_id: bytes
    url: str
    sessions: int
    heartbeat_at: datetime


def read_queue(tx: Tx, token: Token, queue_id: bytes) -> QueueView:
    """Return one queue with its live backlog."""
    caller = _reader(tx, token, QUEUES_READ)
    row = select_queue_views(tx, [queue_id]).get(queue_id)
    if row is None or not caller.may_see(row.namespace_id, queue_id):
        raise NotFound("queue not found")
    return view_of_queue(row)


def read_queues(tx: Tx, token: Token, query: ListQueues) -> Page[QueueView]:
    """Return the caller's queues by id; with `name`, that one or none."""
    caller = _reader(tx, token, QUEUES_READ)
    bound = cursor.context("queues", caller.namespace_id, caller.scope.canonical(), query.name)
    position = read_position(tx, bound, query.cursor, (bytes,))
    if query.name is not None:
        named = select_queue_by_name(tx, caller.namespace_id, query.name)
        rows = [named] if named is not None and caller.may_see(named.namespace_id, named.queue_id) else []
        if position is not None:
            rows = [row for row in rows if row.queue_id > position[0]]
    else:
        rows = page_queues(
            tx,
            caller.namespace_id,
            scope=caller.scope.queues,
            after=None if position is None else position[0],
            limit=query.limit + 1,
        )
    return make_page(tx, bound, rows, query.limit, view_of_queue, lambda row: (row.queue_id,))


def read_task(tx: Tx, token: Token, task_id: bytes) -> TaskDetail:
    """Return one task with the exact bytes of its payload and, once it succeeded, of its output."""
    caller = _reader(tx, token, TASKS_READ)
    (row,) = current(tx, [_visible_task(tx, caller, task_id)])
    payload = select_payloads(tx, [task_id]).get(task_id)
    if payload is None:
        raise NotFound("task not found")  # retention removed it between the two reads
    output = select_output(tx, task_id, row.epoch) if row.state == TaskState.SUCCEEDED else None
    return TaskDetail(task=task_view(row), payload=payload, output=output)


def read_tasks(tx: Tx, token: Token, query: ListTasks) -> Page[TaskView]:
    """Return a queue's tasks that pass the filters, newest first."""
    caller = _reader(tx, token, TASKS_READ)
    queue = select_queue_views(tx, [query.queue_id]).get(query.queue_id)
    if queue is None or not caller.may_see(queue.namespace_id, query.queue_id):
        raise NotFound("queue not found")
    bound = cursor.context("tasks", caller.namespace_id, caller.scope.canonical(), *_filters(query))
    position = read_position(tx, bound, query.cursor, (datetime, bytes))
    rows = page_tasks(
        tx,
        TaskPage(
            queue_id=query.queue_id,
            state=query.state,
            business_key_digest=None if query.business_key is None else key_digest(query.business_key),
            created_from=query.created_from,
            created_before=query.created_before,
            after=None if position is None else (position[0], position[1]),
            limit=query.limit + 1,
        ),
    )
    return make_page(
        tx, bound, current(tx, rows), query.limit, task_view, lambda row: (row.created_at, row.task_id)
    )


def read_attempts(tx: Tx, token: Token, query: ListAttempts) -> Page[AttemptView]:
    """Return a task's attempts with late evidence, oldest first, without outputs."""
    caller = _reader(tx, token, TASKS_READ)
    _visible_task(tx, caller, query.task_id)
    bound = cursor.context("attempts", caller.namespace_id, caller.scope.canonical(), query.task_id)
    position = read_position(tx, bound, query.cursor, (int,))
    rows = page_attempts(
        tx, query.task_id, after_epoch=0 if position is None else position[0], limit=query.limit + 1
    )
    evidence = select_evidence(tx, [row.attempt_id for row in rows[: query.limit]])
    return make_page(
        tx,
        bound,
        rows,
        query.limit,
        lambda row: _attempt(row, evidence[row.attempt_id]),
        lambda row: (row.epoch,),
    )


def read_attempt(tx: Tx, token: Token, task_id: bytes, epoch: int) -> AttemptView:
    """Return one attempt with its output and late evidence."""
    caller = _reader(tx, token, TASKS_READ)
    _visible_task(tx, caller, task_id)
    row = select_attempt(tx, task_id, epoch)
    if row is None:
        raise NotFound("attempt not found")
    evidence = select_evidence(tx, [row.attempt_id])
    return _attempt(row, evidence[row.attempt_id], output=select_output(tx, task_id, epoch))


def read_dispatchers(tx: Tx, token: Token) -> tuple[DispatcherView, ...]:
    """Return the live dispatchers, the least busy first, to those who may connect to or look at workers."""
    caller = read_caller(tx, token)
    if not caller.actions & {WORKERS_CONNECT, WORKERS_READ}:
        raise PermissionDenied(f"the credential lacks the actions {WORKERS_CONNECT} and {WORKERS_READ}")
    return tuple(map(_dispatcher, select_live_dispatchers(tx)))


def _reader(tx: Tx, token: Token, action: str) -> Caller:
    caller = read_caller(tx, token)
    caller.require(action)
    return caller


def _visible_task(tx: Tx, caller: Caller, task_id: bytes) -> TaskRow:
    row = select_tasks(tx, [task_id]).get(task_id)
    if row is None or not caller.may_see(row.namespace_id, row.queue_id):
        raise NotFound("task not found")
    return row


def _filters(query: ListTasks) -> tuple[bytes | str | None, ...]:
    times = (query.created_from, query.created_before)
    return (
        query.queue_id,
        query.state,
        query.business_key,
        *(None if moment is None else moment.isoformat() for moment in times),
    )


def _attempt(
    row: AttemptHistoryRow, evidence: Sequence[EvidenceRow], *, output: bytes | None = None
) -> AttemptView:
    return AttemptView(
        attempt_id=row.attempt_id,
        epoch=row.epoch,
        state=AttemptState(row.state),
        queue_id=row.queue_id,
        worker_id=row.worker_id,
        worker_name=row.worker_name,
        concurrency_token=row.concurrency_token,
        leased_at=row.leased_at,
        lease_expires_at=row.lease_expires_at,
        started_at=row.started_at,
        deadline_at=row.deadline_at,
        ended_at=row.ended_at,
        error_code=row.error_code,
        error_message=row.error_message,
        output=output,
        evidence=tuple(
            EvidenceView(
                received_at=item.received_at,
                outcome=item.outcome,
                error_code=item.error_code,
                error_message=item.error_message,
            )
            for item in evidence
        ),
    )


def _dispatcher(row: DispatcherRow) -> DispatcherView:
    return DispatcherView(
        dispatcher_id=row.dispatcher_id, url=row.url, sessions=row.sessions, heartbeat_at=row.heartbeat_at
    )
