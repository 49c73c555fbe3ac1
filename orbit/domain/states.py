"""States of tasks and attempts, the words beside them, and the legal moves (02-pulse "Tasks")."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """Where a task stands; terminal states never change."""

    WAITING = "WAITING"
    LEASED = "LEASED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    NEEDS_REVIEW = "NEEDS_REVIEW"


class AttemptState(StrEnum):
    """Where one granted execution stands."""

    LEASED = "LEASED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    RETRYABLE = "RETRYABLE"
    UNKNOWN = "UNKNOWN"
    DECLINED = "DECLINED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class Outcome(StrEnum):
    """What a worker reports at the end of an attempt."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    RETRY = "RETRY"
    UNKNOWN = "UNKNOWN"


class DeclineReason(StrEnum):
    """Why a worker hands an unstarted attempt back."""

    DRAINING = "DRAINING"
    BUSY = "BUSY"
    UNSUPPORTED = "UNSUPPORTED"


class Backoff(StrEnum):
    """How the delay before attempt n + 1 grows with n."""

    NONE = "NONE"
    FIXED = "FIXED"
    LINEAR = "LINEAR"
    EXPONENTIAL = "EXPONENTIAL"


class OnUnknown(StrEnum):
    """What becomes of an attempt whose outside effect can't be known."""

    REVIEW = "REVIEW"
    RETRY = "RETRY"


class Effect(StrEnum):
    """The effect class that a worker declares for a handler (08-beyond)."""

    PURE = "PURE"
    IDEMPOTENT = "IDEMPOTENT"
    FENCED = "FENCED"
    ONCE = "ONCE"


class Poll(StrEnum):
    """A POLL task's answer: look again later, or finished."""

    PENDING = "PENDING"
    DONE = "DONE"


class Disposition(StrEnum):
    """How a reported result was taken: as the end, as a repeat of it, or as evidence after it."""

    APPLIED = "APPLIED"
    DUPLICATE = "DUPLICATE"
    LATE = "LATE"


TERMINAL: Final = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})
# Each of these holds one backlog place of its queue and one of the application's quota.
UNFINISHED: Final = frozenset(TaskState) - TERMINAL
# An attempt in one of these holds the queue's permit and, if keyed, its key.
LIVE: Final = frozenset({AttemptState.LEASED, AttemptState.RUNNING})

# Where a task may go from each state; an eager start is two moves of one commit.
TASK_MOVES: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    TaskState.WAITING: frozenset({TaskState.LEASED, TaskState.CANCELLED, TaskState.FAILED}),
    TaskState.LEASED: frozenset(
        {TaskState.RUNNING, TaskState.WAITING, TaskState.CANCELLED, TaskState.FAILED}
    ),
    TaskState.RUNNING: frozenset(
        {
            TaskState.SUCCEEDED,
            TaskState.FAILED,
            TaskState.CANCELLED,
            TaskState.WAITING,
            TaskState.NEEDS_REVIEW,
        }
    ),
    TaskState.NEEDS_REVIEW: frozenset({TaskState.SUCCEEDED, TaskState.FAILED}),
    TaskState.SUCCEEDED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELLED: frozenset(),
}
