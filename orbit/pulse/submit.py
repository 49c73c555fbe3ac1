"""Submit: accept tasks under their idempotency keys; either all of a task is stored, or nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from orbit.domain.digest import command_digest
from orbit.domain.errors import (
    InvalidArgument,
    NotFound,
    OrbitError,
    QueueFull,
    QuotaExceeded,
)
from orbit.domain.keys import handler_digest, key_digest, lane_id
from orbit.domain.limits import AVAILABLE_AHEAD_MAX_MS, START_DEADLINE_AHEAD_MAX_MS
from orbit.domain.permissions import TASKS_SUBMIT
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import TaskState
from orbit.domain.wire import format_time
from orbit.kernel.caller import Caller, Token
from orbit.kernel.idempotency import read_receipts, replayed
from orbit.kernel.identity import credentials_of, judge_callers
from orbit.pulse.commands import SubmitTask, TaskAnswer
from orbit.pulse.endings import unstarted_deadline
from orbit.pulse.lanes import lanes_of
from orbit.pulse.snapshots import accepted_view
from orbit.pulse.usage import Usage, lock_usage
from orbit.store.sql.lanes import add_ready
from orbit.store.sql.queues import read_queues
from orbit.store.sql.receipts import ReceiptRow, insert_receipts
from orbit.store.sql.tasks import TaskRow, insert_tasks, select_tasks
from orbit.store.transaction import Tx

# What a submit without a policy gets: one attempt.
_NO_RETRY = RetryPolicy()
_AVAILABLE_AHEAD = timedelta(milliseconds=AVAILABLE_AHEAD_MAX_MS)
_START_DEADLINE_AHEAD = timedelta(milliseconds=START_DEADLINE_AHEAD_MAX_MS)


@dataclass(slots=True)
class _Batch:
    """One transaction's submits: what is known, and what has been accepted so far."""

    tx: Tx
    usage: Usage
    callers: dict[Token, Caller | OrbitError]
    receipts: dict[bytes, ReceiptRow]
    stored: dict[bytes, TaskRow]
    tasks: dict[bytes, TaskRow] = field(default_factory=dict)
    new_receipts: list[ReceiptRow] = field(default_factory=list)
    payloads: list[tuple[bytes, bytes]] = field(default_factory=list)

    def submit(self, command: SubmitTask) -> TaskAnswer | OrbitError:
        try:
            return self._judge(command)
        except OrbitError as refusal:
            return refusal

    def _judge(self, command: SubmitTask) -> TaskAnswer:
        """Refuse in the documented order: replay, permission, queue, times, application quota, queue."""
        caller = self.callers[command.token]
        if isinstance(caller, OrbitError):
            raise caller
        identity, digest = caller.identity(TASKS_SUBMIT, command.idempotency_key), submit_digest(command)
        receipt = replayed(self.receipts.get(identity), digest)
        caller.require(TASKS_SUBMIT)
        if receipt is not None:
            return self._replay(caller, command, receipt)
        queue = self.usage.find(command.queue_id)
        if queue is None:
            raise NotFound("queue not found")
        caller.require_visible(queue.row.namespace_id, command.queue_id, "queue")
        times = _times(command, self.tx.now)
        if self.usage.unfinished_room <= 0:
            raise QuotaExceeded(
                "the application's unfinished task quota is used up; repeat later with the same key"
            )
        if queue.unfinished >= queue.row.max_unfinished_tasks:
            raise QueueFull("the queue's unfinished task limit is reached; repeat later with the same key")
        return self._accept(caller, command, identity, digest, times)

    def _replay(self, caller: Caller, command: SubmitTask, receipt: ReceiptRow) -> TaskAnswer:
        row = self.tasks.get(receipt.resource_id) or self.stored[receipt.resource_id]
        caller.require_visible(row.namespace_id, row.queue_id, "queue")
        # The candidate id tells a repeat of this very transaction, after a COMMIT without an answer, from a client's.
        return TaskAnswer(deduplicated=receipt.resource_id != command.task_id, task=accepted_view(row))

    def _accept(
        self, caller: Caller, command: SubmitTask, identity: bytes, digest: bytes, times: _Times
    ) -> TaskAnswer:
        row = _row(caller, command, identity, times, self.tx.now)
        self.usage.add_unfinished(row.queue_id, 1)
        self.tasks[row.task_id] = row
        self.payloads.append((row.task_id, command.payload))
        receipt = ReceiptRow(identity, row.application_id, digest, row.task_id, None, self.tx.now)
        self.receipts[identity] = receipt
        self.new_receipts.append(receipt)
        return TaskAnswer(deduplicated=False, task=accepted_view(row))

    def flush(self) -> None:
        """Store what was accepted. Locks: usage rows (rank 4); lane rows under the application's write lock."""
        if not self.tasks:
            return
        insert_receipts(self.tx, self.new_receipts)
        self.usage.flush()
        insert_tasks(self.tx, list(self.tasks.values()), self.payloads)
        add_ready(self.tx, lanes_of(self.tx, (row for row in self.tasks.values() if row.ready)))


def submit_tasks(
    tx: Tx, application_id: bytes, commands: Sequence[SubmitTask]
) -> list[TaskAnswer | OrbitError]:
    """Accept tasks of one application, each under its own identity; a refusal leaves nothing behind.

    The same identity twice in the list: the first decides, the later one is judged against it.
    Locks: the application (rank 1), queue usage (4); lanes. Raises: NotFound for an unknown application.
    """
    tokens = {command.token for command in commands}
    usage, (queues, credentials) = lock_usage(
        tx,
        application_id,
        read_queues(sorted({command.queue_id for command in commands})),
        credentials_of(tokens),
    )
    usage.know(queues)
    callers = judge_callers(tx, tokens, credentials)
    receipts = read_receipts(tx, callers, commands, TASKS_SUBMIT)
    stored = select_tasks(tx, sorted(receipt.resource_id for receipt in receipts.values()))
    batch = _Batch(tx, usage, callers, receipts, stored)
    outcomes = [batch.submit(command) for command in commands]
    batch.flush()
    return outcomes


def submit_digest(command: SubmitTask) -> bytes:
    """Return the digest of a submit's content; what the request left out is left out here too."""
    retry = command.retry
    return command_digest(
        "tasks:submit",
        [
            ("queue_id", command.queue_id),
            ("handler", command.handler),
            ("handler_version", command.handler_version),
            ("payload_version", command.payload_version),
            ("payload", command.payload),
            ("business_key", command.business_key),
            ("concurrency_key", command.concurrency_key),
            ("priority", command.priority or None),
            ("delay_ms", command.delay_ms),
            ("available_at", _time_text(command.available_at)),
            ("start_deadline_at", _time_text(command.start_deadline_at)),
            ("timeout_ms", command.timeout_ms),
            ("attempt_timeout_ms", command.attempt_timeout_ms),
            ("retry.max_attempts", None if retry is None else retry.max_attempts),
            ("retry.backoff", None if retry is None else retry.backoff),
            ("retry.initial_ms", None if retry is None else retry.initial_ms),
            ("retry.max_ms", None if retry is None else retry.max_ms),
            ("on_unknown", command.on_unknown),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    available_at: datetime
    deadline_at: datetime | None


def _times(command: SubmitTask, now: datetime) -> _Times:
    """Fix a new task's times from the database's; absolute ones must not be past at first acceptance."""
    available_at = now + timedelta(milliseconds=command.delay_ms or 0)
    if command.available_at is not None:
        if command.available_at < now:
            raise InvalidArgument("is in the past", field="available_at")
        if command.available_at > now + _AVAILABLE_AHEAD:
            raise InvalidArgument("is more than 366 days ahead", field="available_at")
        available_at = command.available_at
    if command.start_deadline_at is not None:
        if command.start_deadline_at <= now:
            raise InvalidArgument("is in the past", field="start_deadline_at")
        if command.start_deadline_at <= available_at:
            raise InvalidArgument(
                "must be after the time at which the task is available", field="start_deadline_at"
            )
        if command.start_deadline_at > now + _START_DEADLINE_AHEAD:
            raise InvalidArgument("is too far ahead", field="start_deadline_at")
    deadline_at = None if command.timeout_ms is None else now + timedelta(milliseconds=command.timeout_ms)
    return _Times(available_at=available_at, deadline_at=deadline_at)


def _row(caller: Caller, command: SubmitTask, identity: bytes, times: _Times, now: datetime) -> TaskRow:
    retry = command.retry or _NO_RETRY
    digest = key_digest(command.concurrency_key)
    ready = times.available_at <= now
    business_key = None if command.business_key is None else command.business_key.encode()
    return TaskRow(
        task_id=command.task_id,
        application_id=caller.application_id,
        namespace_id=caller.namespace_id,
        queue_id=command.queue_id,
        lane_id=lane_id(command.queue_id, handler_digest(command.handler, command.handler_version), digest),
        receipt_id=identity,
        handler=command.handler,
        handler_version=command.handler_version,
        payload_version=command.payload_version,
        business_key=business_key,
        business_key_digest=None if business_key is None else sha256(business_key).digest(),
        concurrency_key=None if command.concurrency_key is None else command.concurrency_key.encode(),
        key_digest=digest,
        priority=command.priority,
        state=TaskState.WAITING,
        ready=1 if ready else None,
        available_at=times.available_at,
        due_at=None if ready else times.available_at,
        unstarted_deadline_at=unstarted_deadline(0, command.start_deadline_at, times.deadline_at),
        requested_available_at=command.available_at,
        delay_ms=command.delay_ms,
        start_deadline_at=command.start_deadline_at,
        timeout_ms=command.timeout_ms,
        deadline_at=times.deadline_at,
        attempt_timeout_ms=command.attempt_timeout_ms,
        max_attempts=retry.max_attempts,
        backoff=retry.backoff,
        backoff_initial_ms=retry.initial_ms,
        backoff_max_ms=retry.max_ms,
        on_unknown=command.on_unknown,
        epoch=0,
        attempts_used=0,
        cancel_requested_at=None,
        error_code=None,
        error_message=None,
        revision=1,
        created_at=now,
        updated_at=now,
        finished_at=None,
    )


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else format_time(at)
