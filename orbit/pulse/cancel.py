"""Cancel: at once while nothing has started, an intent while a worker runs the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from orbit.domain.digest import command_digest
from orbit.domain.errors import NotFound, OrbitError, StateConflict
from orbit.domain.ids import new_id
from orbit.domain.permissions import TASKS_CANCEL
from orbit.domain.states import TERMINAL, AttemptState, TaskState
from orbit.domain.wire import format_time, parse_time
from orbit.kernel.caller import Caller, Token
from orbit.kernel.idempotency import read_receipts, replayed
from orbit.kernel.identity import read_callers
from orbit.pulse.commands import CancelTask, TaskAnswer
from orbit.pulse.endings import Ending
from orbit.pulse.settle import Results, settle
from orbit.pulse.snapshots import overlay, task_view
from orbit.pulse.usage import Usage, lock_usage
from orbit.pulse.waiting import WaitingEnd, end_waiting
from orbit.store.sql.attempts import HeldRow, select_live_of_tasks
from orbit.store.sql.audits import AuditRow, insert_audits
from orbit.store.sql.receipts import ReceiptRow, insert_receipts
from orbit.store.sql.tasks import TaskRow, select_tasks, update_cancel_intent
from orbit.store.transaction import Tx


class _Frozen(msgspec.Struct, frozen=True):
    """What of a cancelled task may change later; the rest of the answer is rebuilt from frozen columns."""

    state: str
    revision: int
    epoch: int
    attempts_used: int
    available_at: str
    updated_at: str
    cancel_requested_at: str
    finished_at: str | None
    error_code: str | None


@dataclass(slots=True)
class _Batch:
    tx: Tx
    usage: Usage
    callers: dict[Token, Caller | OrbitError]
    receipts: dict[bytes, ReceiptRow]
    tasks: dict[bytes, TaskRow]
    live: dict[bytes, HeldRow]
    endings: list[Ending] = field(default_factory=list)
    waiting: list[WaitingEnd] = field(default_factory=list)
    intents: list[bytes] = field(default_factory=list)
    new_receipts: list[ReceiptRow] = field(default_factory=list)
    audits: list[AuditRow] = field(default_factory=list)

    def cancel(self, command: CancelTask) -> TaskAnswer | OrbitError:
        try:
            return self._judge(command)
        except OrbitError as refusal:
            return refusal

    def _judge(self, command: CancelTask) -> TaskAnswer:
        caller = self.callers[command.token]
        if isinstance(caller, OrbitError):
            raise caller
        identity, digest = caller.identity(TASKS_CANCEL, command.idempotency_key), _digest(command)
        receipt = replayed(self.receipts.get(identity), digest)
        caller.require(TASKS_CANCEL)
        task = self.tasks.get(command.task_id)
        if task is None:
            raise NotFound("task not found")
        caller.require_visible(task.namespace_id, task.queue_id, "task")
        if receipt is not None:
            frozen = _thaw(task, receipt.body or b"")
            return TaskAnswer(deduplicated=not self.tx.resolving, task=task_view(frozen))
        if task.state in TERMINAL:
            raise StateConflict(f"the task has already ended: {task.state}")
        if task.state == TaskState.NEEDS_REVIEW:
            raise StateConflict("the task's effect is unknown: it needs a review, not a cancel")
        ended = overlay(self._cancel(task), self.live.get(task.task_id))
        self._note(caller, command, identity, digest, ended)
        return TaskAnswer(deduplicated=False, task=task_view(ended), intent=ended.state == TaskState.RUNNING)

    def _cancel(self, task: TaskRow) -> TaskRow:
        """Gather what the cancellation changes and return the task as it will be stored."""
        now = self.tx.now
        if self._runs(task):
            if task.cancel_requested_at is not None:
                return task
            self.intents.append(task.task_id)
            after = task._replace(cancel_requested_at=now, revision=task.revision + 1, updated_at=now)
        else:
            self._end(task)
            after = task._replace(
                state=TaskState.CANCELLED,
                cancel_requested_at=now,
                finished_at=now,
                revision=task.revision + 1,
                updated_at=now,
            )
        # A second command of this group about the same task is judged against it.
        self.tasks[task.task_id] = after
        return after

    def _runs(self, task: TaskRow) -> bool:
        held = self.live.get(task.task_id)
        return held is not None and held.attempt_state == AttemptState.RUNNING

    def _end(self, task: TaskRow) -> None:
        now = self.tx.now
        if task.state == TaskState.WAITING:
            self.waiting.append(WaitingEnd(task=task, state=TaskState.CANCELLED, cancel_requested_at=now))
        else:
            self.endings.append(
                Ending(
                    held=self.live[task.task_id],
                    attempt_state=AttemptState.CANCELLED,
                    task_state=TaskState.CANCELLED,
                    cancel_requested_at=now,
                )
            )

    def _note(
        self, caller: Caller, command: CancelTask, identity: bytes, digest: bytes, task: TaskRow
    ) -> None:
        now = self.tx.now
        receipt = ReceiptRow(identity, task.application_id, digest, task.task_id, _freeze(task), now)
        self.receipts[identity] = receipt
        self.new_receipts.append(receipt)
        self.audits.append(
            AuditRow(
                audit_id=new_id(),
                application_id=task.application_id,
                namespace_id=task.namespace_id,
                credential_id=caller.credential_id,
                action=TASKS_CANCEL,
                resource_kind="task",
                resource_id=task.task_id,
                reason=command.reason,
                details=msgspec.json.encode({"state": task.state}).decode(),
                created_at=now,
            )
        )

    def flush(self) -> None:
        """Store everything. Locks: tasks (rank 7), attempts (8), stream rows last (9)."""
        results = Results()
        insert_receipts(self.tx, self.new_receipts)
        end_waiting(self.tx, self.usage, results, self.waiting)
        settle(self.tx, self.usage, results, self.endings)
        if self.intents:
            update_cancel_intent(self.tx, self.intents)
        insert_audits(self.tx, self.audits)
        self.usage.flush()
        results.flush(self.tx)


def cancel_tasks(
    tx: Tx, application_id: bytes, commands: Sequence[CancelTask]
) -> list[TaskAnswer | OrbitError]:
    """Cancel tasks of one application (02-pulse, the state table). Locks: the application (rank 1) and what it ends."""
    usage, _ = lock_usage(tx, application_id)
    callers = read_callers(tx, [command.token for command in commands])
    tasks = select_tasks(tx, sorted({command.task_id for command in commands}))
    mine = {task_id: task for task_id, task in tasks.items() if task.application_id == application_id}
    leased = [task_id for task_id, task in mine.items() if task.state == TaskState.LEASED]
    usage.load(task.queue_id for task in mine.values())
    batch = _Batch(
        tx,
        usage,
        callers,
        read_receipts(tx, callers, commands, TASKS_CANCEL),
        mine,
        select_live_of_tasks(tx, leased),
    )
    outcomes = [batch.cancel(command) for command in commands]
    batch.flush()
    return outcomes


def _digest(command: CancelTask) -> bytes:
    return command_digest("tasks:cancel", [("task_id", command.task_id), ("reason", command.reason or None)])


def _freeze(task: TaskRow) -> bytes:
    assert task.cancel_requested_at is not None
    return msgspec.json.encode(
        _Frozen(
            state=task.state,
            revision=task.revision,
            epoch=task.epoch,
            attempts_used=task.attempts_used,
            available_at=format_time(task.available_at),
            updated_at=format_time(task.updated_at),
            cancel_requested_at=format_time(task.cancel_requested_at),
            finished_at=None if task.finished_at is None else format_time(task.finished_at),
            error_code=task.error_code,
        )
    )


def _thaw(task: TaskRow, body: bytes) -> TaskRow:
    frozen = msgspec.json.decode(body, type=_Frozen)
    return task._replace(
        state=frozen.state,
        revision=frozen.revision,
        epoch=frozen.epoch,
        attempts_used=frozen.attempts_used,
        available_at=parse_time(frozen.available_at, "available_at"),
        updated_at=parse_time(frozen.updated_at, "updated_at"),
        cancel_requested_at=parse_time(frozen.cancel_requested_at, "cancel_requested_at"),
        finished_at=None if frozen.finished_at is None else parse_time(frozen.finished_at, "finished_at"),
        error_code=frozen.error_code,
        error_message=None,
    )
