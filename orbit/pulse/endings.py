"""Endings: what an attempt's end makes of its task. Pure decisions, stored by `settle` (02-pulse, the state table)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from orbit.domain.limits import DECLINE_PAUSE_MS
from orbit.domain.retry import RetryPolicy, delay_ms, has_attempts_left
from orbit.domain.states import AttemptState, Backoff, DeclineReason, OnUnknown, Outcome, TaskState
from orbit.store.sql.attempts import HeldRow
from orbit.store.sql.tasks import TaskRow

DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
START_DEADLINE_EXCEEDED = "START_DEADLINE_EXCEEDED"
LEASE_EXPIRED = "LEASE_EXPIRED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt or a task failed, in the words that people will read."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a live attempt and the state that its task takes.

    `available_at` is set for WAITING only. `command_id` and `digest` identify the worker's message, where one ended it.
    """

    held: HeldRow
    attempt_state: AttemptState
    task_state: TaskState
    failure: Failure | None = None
    available_at: datetime | None = None
    command_id: str | None = None
    digest: bytes | None = None
    output: bytes | None = None
    cancel_requested_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """A task's next state, its failure and, for WAITING, when it may be claimed again."""

    state: TaskState
    failure: Failure | None = None
    available_at: datetime | None = None


def after_result(
    held: HeldRow, outcome: Outcome, failure: Failure | None, retry_after_ms: int | None, now: datetime
) -> tuple[AttemptState, Next]:
    """Decide what a worker's result makes of a RUNNING attempt and its task."""
    if outcome is Outcome.SUCCEEDED:
        return AttemptState.SUCCEEDED, Next(state=TaskState.SUCCEEDED)
    if outcome is Outcome.FAILED:
        return AttemptState.FAILED, Next(state=TaskState.FAILED, failure=failure)
    if outcome is Outcome.RETRY:
        return AttemptState.RETRYABLE, after_safe_failure(held, failure, retry_after_ms, now)
    return AttemptState.UNKNOWN, after_unknown(held, failure, now)


def after_safe_failure(
    held: HeldRow, failure: Failure | None, retry_after_ms: int | None, now: datetime
) -> Next:
    """Decide for an execution that is known to have had no effect: retry, or end as cancelled or failed."""
    if held.cancel_requested_at is not None:
        return Next(state=TaskState.CANCELLED, failure=failure)
    if not has_attempts_left(_policy(held), held.attempts_used):
        return Next(state=TaskState.FAILED, failure=failure)
    available_at = now + timedelta(milliseconds=_backoff_ms(held, retry_after_ms))
    if held.deadline_at is not None and available_at >= held.deadline_at:
        return Next(state=TaskState.FAILED, failure=_deadline_failure())
    return Next(state=TaskState.WAITING, failure=failure, available_at=available_at)


def after_unknown(held: HeldRow, failure: Failure | None, now: datetime) -> Next:
    """Decide for an execution whose effect can't be known: a person decides, unless the task said RETRY."""
    if held.on_unknown != OnUnknown.RETRY:
        return Next(state=TaskState.NEEDS_REVIEW, failure=failure)
    if held.cancel_requested_at is not None:
        return Next(state=TaskState.CANCELLED, failure=failure)
    if held.deadline_at is not None and held.deadline_at <= now:
        return Next(state=TaskState.FAILED, failure=_deadline_failure())
    if not has_attempts_left(_policy(held), held.attempts_used):
        return Next(state=TaskState.NEEDS_REVIEW, failure=failure)
    return after_safe_failure(held, failure, None, now)


def after_decline(reason: DeclineReason, now: datetime) -> Next:
    """An unstarted attempt handed back: at once when the worker drains, a moment later when it can't now."""
    pause = 0 if reason is DeclineReason.DRAINING else DECLINE_PAUSE_MS
    return Next(state=TaskState.WAITING, available_at=now + timedelta(milliseconds=pause))


def after_lapse(held: HeldRow, now: datetime) -> tuple[AttemptState, Next]:
    """A lease that ended: nothing happened before Start, anything may have happened after it."""
    if held.attempt_state == AttemptState.LEASED:
        return AttemptState.EXPIRED, Next(state=TaskState.WAITING, available_at=now)
    failure = Failure(code=LEASE_EXPIRED, message="the lease ended without a result; the effect is unknown")
    return AttemptState.UNKNOWN, after_unknown(held, failure, now)


def deadline_passed(task: HeldRow | TaskRow, now: datetime) -> Failure | None:
    """Return why an unstarted task may not start any more, None while it may.

    The start deadline bounds the first Start; once one was granted, only the total deadline counts.
    """
    if task.deadline_at is not None and task.deadline_at <= now:
        return _deadline_failure()
    if task.attempts_used == 0 and task.start_deadline_at is not None and task.start_deadline_at <= now:
        return Failure(
            code=START_DEADLINE_EXCEEDED, message="the start deadline passed before a Start was granted"
        )
    return None


def unstarted_deadline(
    attempts_used: int, start_deadline_at: datetime | None, deadline_at: datetime | None
) -> datetime | None:
    """Return when a task that waits for a Start fails: the earlier of its deadlines, None without any."""
    deadlines = [deadline_at] if attempts_used else [start_deadline_at, deadline_at]
    return min((at for at in deadlines if at is not None), default=None)


def _deadline_failure() -> Failure:
    return Failure(code=DEADLINE_EXCEEDED, message="the total deadline passed")


def _backoff_ms(held: HeldRow, retry_after_ms: int | None) -> int:
    if retry_after_ms is not None:
        return retry_after_ms
    return delay_ms(_policy(held), max(1, held.attempts_used), random.random())


def _policy(held: HeldRow) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=held.max_attempts,
        backoff=Backoff(held.backoff),
        initial_ms=held.backoff_initial_ms,
        max_ms=held.backoff_max_ms,
    )
