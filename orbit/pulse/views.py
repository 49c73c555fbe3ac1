"""What callers are shown: frozen snapshots of queues, tasks and attempts, rendered by the transports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orbit.domain.states import AttemptState, OnUnknown, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    queue_id: bytes
    namespace_id: bytes
    name: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    unfinished_tasks: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task without its bodies. The policy fields are as frozen at acceptance."""

    task_id: bytes
    namespace_id: bytes
    queue_id: bytes
    handler: str
    handler_version: str
    payload_version: str
    business_key: str | None
    concurrency_key: str | None
    priority: int
    state: TaskState
    revision: int
    epoch: int
    attempts_used: int
    created_at: datetime
    updated_at: datetime
    available_at: datetime
    delay_ms: int | None
    start_deadline_at: datetime | None
    timeout_ms: int | None
    deadline_at: datetime | None
    attempt_timeout_ms: int | None
    max_attempts: int
    backoff: str
    backoff_initial_ms: int
    backoff_max_ms: int
    on_unknown: OnUnknown | None
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail:
    task: TaskView
    payload: bytes
    output: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    received_at: datetime
    outcome: str
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    attempt_id: bytes
    epoch: int
    state: AttemptState
    queue_id: bytes
    worker_id: bytes | None
    worker_name: str | None
    concurrency_token: int | None
    leased_at: datetime
    lease_expires_at: datetime | None
    started_at: datetime | None
    deadline_at: datetime | None
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    output: bytes | None = None
    evidence: tuple[EvidenceView, ...] = ()
