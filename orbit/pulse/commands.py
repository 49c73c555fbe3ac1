"""The typed commands of Pulse and their outcomes.

A list function answers each command with its outcome or an `OrbitError`. Ids are 16 bytes, times naive UTC, durations
milliseconds. Ids that a command creates (`task_id`, `attempt_ids`, …) are made by the process beforehand, so that a
COMMIT without an answer is resolved by running the same list again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import DeclineReason, Disposition, OnUnknown, Outcome, TaskState
from orbit.kernel.caller import Token
from orbit.pulse.views import QueueView, TaskView

# --- management and submission (HTTP)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateQueue:
    """`max_unfinished_tasks` is 0 where the request left it out (then the default holds)."""

    token: Token
    idempotency_key: str
    queue_id: bytes
    name: str
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureQueue:
    token: Token
    idempotency_key: str
    queue_id: bytes
    expected_revision: int
    reason: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAnswer:
    deduplicated: bool
    queue: QueueView


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTask:
    """A new task; field rules (lengths, alphabets, ranges) were checked by the transport, times are checked here.

    `retry` is `None` where the request left it out. At most one of `delay_ms` (None = omitted or 0) and
    `available_at` is given.
    """

    token: Token
    idempotency_key: str
    task_id: bytes
    queue_id: bytes
    handler: str
    handler_version: str
    payload_version: str
    payload: bytes
    business_key: str | None = None
    concurrency_key: str | None = None
    priority: int = 0
    delay_ms: int | None = None
    available_at: datetime | None = None
    start_deadline_at: datetime | None = None
    timeout_ms: int | None = None
    attempt_timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    on_unknown: OnUnknown | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTask:
    token: Token
    idempotency_key: str
    task_id: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """`intent` is true when a running attempt still has to learn of the cancellation."""

    deduplicated: bool
    task: TaskView
    intent: bool = False


# --- attempts: the operations of a dispatch tick


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishAttempt:
    session_id: bytes
    command_id: str
    attempt_id: bytes
    epoch: int
    outcome: Outcome
    output: bytes | None = None
    error_code: str | None = None
    error_message: str | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    task_state: TaskState
    disposition: Disposition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclineAttempt:
    session_id: bytes
    command_id: str
    attempt_id: bytes
    epoch: int
    reason: DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteTasks:
    """Make due tasks claimable; those that aren't due any more are passed over."""

    task_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    session_id: bytes
    command_id: str
    attempt_id: bytes
    epoch: int
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """`deadline_ms` counts from the grant; None where the attempt has no deadline."""

    lease_ms: int
    deadline_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A session with room for `free` more attempts."""

    session_id: bytes
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTasks:
    """Claim for one pool: sessions with the same registration. Queues are in rotation order.

    `attempt_ids` are as many candidates as may be claimed: min(sum of free seats, the group's bound).
    """

    namespace_id: bytes
    queue_ids: tuple[bytes, ...]
    handlers: tuple[tuple[str, str], ...]
    concurrency_keys: bool
    seats: tuple[Seat, ...]
    attempt_ids: tuple[bytes, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A claimed attempt as its session must be told; the payload is read after the commit, outside the lock."""

    session_id: bytes
    attempt_id: bytes
    task_id: bytes
    queue_id: bytes
    epoch: int
    lease_ms: int
    handler: str
    handler_version: str
    payload_version: str
    attempt_number: int
    max_attempts: int
    priority: int
    business_key: str | None
    concurrency_key: str | None
    concurrency_token: int | None
    deadline_ms: int | None
    started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """`more` is true when claimable tasks were left for want of seats."""

    assignments: tuple[Assignment, ...]
    more: bool = False


TickOperation = FinishAttempt | DeclineAttempt | PromoteTasks | StartAttempt | ClaimTasks
TickOutcome = Recorded | Declined | Promoted | Started | Claimed
