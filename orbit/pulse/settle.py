"""Settling: store the ends of attempts with their tasks, permits, keys, lanes, counters and events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbit.domain.states import TERMINAL, AttemptState, TaskState
from orbit.pulse.endings import Ending, unstarted_deadline
from orbit.pulse.lanes import lanes_of
from orbit.pulse.usage import Usage
from orbit.store.sql.attempts import AttemptEnd, insert_outputs, update_attempts_ended
from orbit.store.sql.events import (
    ResultEventRow,
    StateEventRow,
    allocate_sequences,
    insert_result_events,
    insert_state_events,
)
from orbit.store.sql.keys import release_keys
from orbit.store.sql.lanes import add_ready, set_occupied
from orbit.store.sql.tasks import TaskEnd, TaskReturn, select_tasks, update_ended, update_returned
from orbit.store.transaction import Tx

# States whose entry is a result that subscribers will want to hear of.
_NOTED = frozenset({*TERMINAL, TaskState.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """A task's transition to a terminal state or to review."""

    namespace_id: bytes
    queue_id: bytes
    task_id: bytes
    epoch: int
    from_state: str
    to_state: TaskState
    error_code: str | None
    revision: int


@dataclass(slots=True)
class Results:
    """The results of one transaction, recorded last: the stream rows are the last locks taken."""

    rows: list[TaskResult] = field(default_factory=list)

    def flush(self, tx: Tx) -> None:
        """Append result and state events. Locks: stream rows (rank 9, sorted)."""
        following = allocate_sequences(tx, Counter(row.namespace_id for row in self.rows))
        events = []
        for row in self.rows:
            events.append(_result_event(row, following[row.namespace_id], tx.now))
            following[row.namespace_id] += 1
        insert_result_events(tx, events)
        insert_state_events(tx, [_state_event(row, tx.now) for row in self.rows])


def settle(tx: Tx, usage: Usage, results: Results, endings: Sequence[Ending]) -> None:
    """End attempts and move their tasks; release permits and keys; note results.

    Locks: key and lane rows (rank 6), tasks (7), attempts (8).
    """
    if not endings:
        return
    now = tx.now
    _release_keys(tx, endings)
    update_ended(tx, {e.held.task_id: _task_end(e, now) for e in endings if e.available_at is None})
    update_returned(tx, {e.held.task_id: _task_return(e, at, now) for e in endings if (at := e.available_at)})
    update_attempts_ended(tx, {ending.held.attempt_id: _attempt_end(ending, now) for ending in endings})
    insert_outputs(tx, [(e.held.task_id, e.held.epoch, e.output) for e in endings if e.output is not None])
    ready = [e.held.task_id for e in endings if e.available_at is not None and e.available_at <= now]
    add_ready(tx, lanes_of(tx, select_tasks(tx, ready).values()))
    for ending in endings:
        _count(usage, results, ending)


def _count(usage: Usage, results: Results, ending: Ending) -> None:
    held = ending.held
    usage.end_attempt(held.queue_id, started=held.attempt_state != AttemptState.LEASED)
    if ending.task_state in TERMINAL:
        usage.add_unfinished(held.queue_id, -1)
    if ending.task_state in _NOTED:
        results.rows.append(
            TaskResult(
                namespace_id=held.namespace_id,
                queue_id=held.queue_id,
                task_id=held.task_id,
                epoch=held.epoch,
                from_state=held.attempt_state,  # a task that is held stands where its attempt does
                to_state=ending.task_state,
                error_code=ending.failure.code if ending.failure else None,
                revision=held.revision + 1,
            )
        )


def _release_keys(tx: Tx, endings: Iterable[Ending]) -> None:
    by_namespace: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
    for ending in endings:
        if ending.held.key_digest is not None:
            by_namespace[ending.held.namespace_id].append((ending.held.key_digest, ending.held.attempt_id))
    for namespace_id in sorted(by_namespace):
        held = by_namespace[namespace_id]
        release_keys(tx, namespace_id, held)
        set_occupied(tx, namespace_id, [digest for digest, _ in held], occupied=False)


def _task_end(ending: Ending, now: datetime) -> TaskEnd:
    held, failure = ending.held, ending.failure
    return TaskEnd(
        state=ending.task_state,
        attempts_used=held.attempts_used,
        error_code=failure.code if failure else None,
        error_message=failure.message if failure else None,
        finished_at=now if ending.task_state in TERMINAL else None,
        cancel_requested_at=ending.cancel_requested_at or held.cancel_requested_at,
        updated_at=now,
    )


def _task_return(ending: Ending, available_at: datetime, now: datetime) -> TaskReturn:
    held, failure = ending.held, ending.failure
    ready = available_at <= now
    return TaskReturn(
        ready=1 if ready else None,
        available_at=available_at,
        due_at=None if ready else available_at,
        unstarted_deadline_at=unstarted_deadline(
            held.attempts_used, held.start_deadline_at, held.deadline_at
        ),
        attempts_used=held.attempts_used,
        error_code=failure.code if failure else None,
        error_message=failure.message if failure else None,
        updated_at=now,
    )


def _attempt_end(ending: Ending, now: datetime) -> AttemptEnd:
    return AttemptEnd(
        ended_at=now,
        state=ending.attempt_state,
        end_command_id=None if ending.command_id is None else ending.command_id.encode(),
        result_digest=ending.digest,
        ended_task_state=ending.task_state,
        error_code=ending.failure.code if ending.failure else None,
        error_message=ending.failure.message if ending.failure else None,
    )


def _result_event(row: TaskResult, sequence: int, now: datetime) -> ResultEventRow:
    return ResultEventRow(
        row.namespace_id, sequence, row.queue_id, row.task_id, row.epoch, row.to_state, row.error_code, now
    )


def _state_event(row: TaskResult, now: datetime) -> StateEventRow:
    return StateEventRow(
        row.task_id, row.revision, row.namespace_id, "task", row.from_state, row.to_state, now
    )
