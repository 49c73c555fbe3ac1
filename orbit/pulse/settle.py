"""Settling: store the ends of attempts with their tasks, permits, keys, lanes, counters and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbit.domain.keys import NO_KEY, handler_digest
from orbit.domain.priority import dispatch_at
from orbit.domain.states import TERMINAL, AttemptState, TaskState
from orbit.pulse.endings import Ending
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
from orbit.store.sql.lanes import LaneRow, add_ready, set_occupied
from orbit.store.sql.tasks import TaskChange, update_changed
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
        by_namespace: dict[bytes, list[TaskResult]] = defaultdict(list)
        for row in self.rows:
            by_namespace[row.namespace_id].append(row)
        for namespace_id in sorted(by_namespace):
            rows = by_namespace[namespace_id]
            first = allocate_sequences(tx, namespace_id, len(rows))
            insert_result_events(tx, [_result_event(row, first + i, tx.now) for i, row in enumerate(rows)])
        insert_state_events(tx, [_state_event(row, tx.now) for row in self.rows])


def settle(tx: Tx, usage: Usage, results: Results, endings: Sequence[Ending]) -> None:
    """End attempts and move their tasks; release permits and keys; note results.

    Locks: key and lane rows (rank 6), tasks (7), attempts (8).
    """
    if not endings:
        return
    now = tx.now
    _release_keys(tx, endings)
    update_changed(tx, {ending.held.task_id: _task_change(ending, now) for ending in endings})
    update_attempts_ended(tx, {ending.held.attempt_id: _attempt_end(ending, now) for ending in endings})
    insert_outputs(tx, [(e.held.task_id, e.held.epoch, e.output) for e in endings if e.output is not None])
    add_ready(tx, _ready_lanes(endings, now))
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
                from_state=held.task_state,
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


def _task_change(ending: Ending, now: datetime) -> TaskChange:
    held = ending.held
    waiting_until = ending.available_at
    ready = waiting_until is not None and waiting_until <= now
    return TaskChange(
        state=ending.task_state,
        ready=1 if ready else None,
        available_at=held.available_at if waiting_until is None else waiting_until,
        due_at=None if ready else waiting_until,
        unstarted_deadline_at=None
        if waiting_until is None
        else unstarted_deadline(held.attempts_used, held.start_deadline_at, held.deadline_at),
        error_code=ending.failure.code if ending.failure else None,
        error_message=ending.failure.message if ending.failure else None,
        finished_at=now if ending.task_state in TERMINAL else None,
        cancel_requested_at=ending.cancel_requested_at or held.cancel_requested_at,
        updated_at=now,
    )


def unstarted_deadline(
    attempts_used: int, start_deadline_at: datetime | None, deadline_at: datetime | None
) -> datetime | None:
    """Return when a task that waits for a Start fails: the earlier of its deadlines, None without any."""
    deadlines = [deadline_at] if attempts_used else [start_deadline_at, deadline_at]
    return min((at for at in deadlines if at is not None), default=None)


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


def _ready_lanes(endings: Iterable[Ending], now: datetime) -> list[LaneRow]:
    lanes: dict[bytes, LaneRow] = {}
    for ending in endings:
        if ending.available_at is None or ending.available_at > now:
            continue
        held = ending.held
        head = dispatch_at(ending.available_at, held.priority)
        known = lanes.get(held.lane_id)
        if known is None or head < known.head_dispatch_at:
            lanes[held.lane_id] = LaneRow(
                lane_id=held.lane_id,
                application_id=held.application_id,
                namespace_id=held.namespace_id,
                queue_id=held.queue_id,
                handler_digest=handler_digest(held.handler, held.handler_version),
                key_digest=held.key_digest or NO_KEY,
                head_dispatch_at=head,
                occupied=0,  # its key has just been released
                touched_at=now,
            )
    return list(lanes.values())


def _result_event(row: TaskResult, sequence: int, now: datetime) -> ResultEventRow:
    return ResultEventRow(
        row.namespace_id, sequence, row.queue_id, row.task_id, row.epoch, row.to_state, row.error_code, now
    )


def _state_event(row: TaskResult, now: datetime) -> StateEventRow:
    return StateEventRow(
        row.task_id, row.revision, row.namespace_id, "task", row.from_state, row.to_state, now
    )
