"""Expiry: end attempts whose lease has ended and tasks whose deadline passed unstarted, with permits and keys, in one
transaction. It never asks whether a queue is paused, full or rate-limited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from orbit.domain.states import LIVE, AttemptState, TaskState
from orbit.pulse.clock import read_grace
from orbit.pulse.endings import Ending, after_lapse, deadline_passed
from orbit.pulse.settle import Results, settle
from orbit.pulse.usage import Usage, lock_usage
from orbit.pulse.waiting import WaitingEnd, end_waiting
from orbit.store.sql.attempts import HeldRow, lock_leases, select_held, select_live_of_tasks
from orbit.store.sql.lapses import select_lapsed_leases, select_passed_deadlines
from orbit.store.sql.tasks import TaskRow, select_tasks
from orbit.store.transaction import Tx


@dataclass(slots=True)
class Expired:
    """Candidates of one application, found without locks and judged again under them."""

    attempt_ids: list[bytes] = field(default_factory=list)
    task_ids: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireReport:
    """How many attempts and waiting tasks were ended."""

    attempts: int
    tasks: int


def find_expired(tx: Tx, limit: int) -> dict[bytes, Expired]:
    """Return candidates by application, at most `limit` of each kind."""
    found: dict[bytes, Expired] = defaultdict(Expired)
    for row in select_lapsed_leases(tx, limit):
        found[row.application_id].attempt_ids.append(row.id)
    for row in select_passed_deadlines(tx, limit):
        found[row.application_id].task_ids.append(row.id)
    return dict(found)


def expire(tx: Tx, application_id: bytes, candidates: Expired) -> ExpireReport:
    """End what has really lapsed: leases (unless a grace is running), and deadlines of what has not started.

    Each row is judged anew under the locks, so that a second recoverer, a renewal or a result that came first leaves
    nothing to do. Locks: the application (rank 1), attempts (8, sorted), keys and lanes, streams last.
    """
    (usage, _), results = lock_usage(tx, application_id), Results()
    overdue = [
        task
        for task in select_tasks(tx, sorted(candidates.task_ids)).values()
        if task.application_id == application_id and _is_overdue(task, tx)
    ]
    held = select_live_of_tasks(tx, [task.task_id for task in overdue if task.state == TaskState.LEASED])
    leased = [row for row in held.values() if row.attempt_state == AttemptState.LEASED]
    lapsed = _lapsed(tx, application_id, candidates) if candidates.attempt_ids else []
    usage.load([task.queue_id for task in overdue] + [row.queue_id for row in lapsed])
    endings = [_deadline_ending(tx, row) for row in leased]
    ended = {ending.held.attempt_id for ending in endings}
    endings += [_lapse_ending(tx, row) for row in lapsed if row.attempt_id not in ended]
    waiting = [_deadline_end(tx, task) for task in overdue if task.state == TaskState.WAITING]
    _store(tx, usage, results, endings, waiting)
    return ExpireReport(attempts=len(endings), tasks=len(waiting))


def _store(
    tx: Tx, usage: Usage, results: Results, endings: Sequence[Ending], waiting: Sequence[WaitingEnd]
) -> None:
    end_waiting(tx, usage, results, waiting)
    settle(tx, usage, results, endings)
    usage.flush()
    results.flush(tx)


def _lapsed(tx: Tx, application_id: bytes, candidates: Expired) -> list[HeldRow]:
    """Lock the candidates against renewals and keep those whose lease has ended, unless a grace is running."""
    lock_leases(tx, candidates.attempt_ids)
    if read_grace(tx) > tx.now:
        return []
    return [
        row
        for row in select_held(tx, sorted(candidates.attempt_ids)).values()
        if row.application_id == application_id
        and row.attempt_state in LIVE
        and row.lease_expires_at is not None
        and row.lease_expires_at <= tx.now
    ]


def _is_overdue(task: TaskRow, tx: Tx) -> bool:
    return (
        task.state in (TaskState.WAITING, TaskState.LEASED)
        and task.unstarted_deadline_at is not None
        and task.unstarted_deadline_at <= tx.now
    )


def _deadline_ending(tx: Tx, held: HeldRow) -> Ending:
    return Ending(
        held=held,
        attempt_state=AttemptState.EXPIRED,
        task_state=TaskState.FAILED,
        failure=deadline_passed(held, tx.now),
    )


def _deadline_end(tx: Tx, task: TaskRow) -> WaitingEnd:
    return WaitingEnd(task=task, state=TaskState.FAILED, failure=deadline_passed(task, tx.now))


def _lapse_ending(tx: Tx, held: HeldRow) -> Ending:
    attempt_state, following = after_lapse(held, tx.now)
    return Ending(
        held=held,
        attempt_state=attempt_state,
        task_state=following.state,
        failure=following.failure,
        available_at=following.available_at,
    )
