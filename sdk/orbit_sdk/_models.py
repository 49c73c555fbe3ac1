"""Requests and results of the HTTP API (docs/http.md), as frozen typed records.

Times of results are aware UTC datetimes, revisions, epochs and tokens exact integers; payloads and outputs are
`Raw`: `bytes(task.payload)` are the submitted bytes, `decode_exact(task.payload)` the value with exact numbers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is retried: `backoff` NONE, FIXED, LINEAR or EXPONENTIAL; at most `max_attempts` (1-100) Starts."""

    max_attempts: int
    backoff: str | None = None
    initial_ms: int | None = None
    max_ms: int | None = None


class SubmitTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task to accept. `payload` is any JSON value, or `Raw` bytes that are kept exactly; None leaves it out."""

    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    payload: Any
    business_key: str | None = None
    concurrency_key: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    available_at: datetime | str | None = None
    start_deadline_at: datetime | str | None = None
    timeout_ms: int | None = None
    attempt_timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    on_unknown: str | None = None


class BatchItem(SubmitTask, frozen=True, kw_only=True, omit_defaults=True):
    """A task of a batch, with the key under which it is accepted."""

    idempotency_key: str


class CreateQueue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue to create; `max_unfinished_tasks` None means the server's default."""

    name: str
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int | None = None


class ConfigureQueue(msgspec.Struct, frozen=True, kw_only=True):
    """All control values of a queue, replacing those at `expected_revision`."""

    expected_revision: int
    reason: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its live usage."""

    id: str
    namespace_id: str
    name: str
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    unfinished_tasks: int
    revision: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task or an attempt ended as it did."""

    code: str
    message: str


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A task as lists and writes return it: no payload, no output."""

    id: str
    namespace_id: str
    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    state: str
    revision: int
    priority: int
    created_at: datetime
    updated_at: datetime
    available_at: datetime
    attempts_used: int
    max_attempts: int
    epoch: int
    business_key: str | None = None
    concurrency_key: str | None = None
    start_deadline_at: datetime | None = None
    deadline_at: datetime | None = None
    timeout_ms: int | None = None
    attempt_timeout_ms: int | None = None
    delay_ms: int | None = None
    on_unknown: str | None = None
    cancel_requested_at: datetime | None = None
    finished_at: datetime | None = None
    error: Failure | None = None
    retry: RetryPolicy | None = None


class Task(TaskSummary, frozen=True, kw_only=True):
    """A task in full. `output` is empty until it has SUCCEEDED."""

    payload: Raw = Raw(b"")
    output: Raw = Raw(b"")


class LateEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """A result that came after the end of its attempt."""

    received_at: datetime
    outcome: str
    error: Failure | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One granted execution of a task. Lists leave `output` empty."""

    attempt_id: str
    n: int
    epoch: int
    state: str
    queue_id: str
    leased_at: datetime
    worker_id: str | None = None
    worker_name: str | None = None
    concurrency_token: int | None = None
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    lease_expires_at: datetime | None = None
    ended_at: datetime | None = None
    error: Failure | None = None
    output: Raw = Raw(b"")
    late_evidence: list[LateEvidence] = []


class Dispatcher(msgspec.Struct, frozen=True, kw_only=True):
    """A live dispatcher and the number of its worker sessions."""

    id: str
    url: str
    sessions: int
    heartbeat_at: datetime


class QueueResult(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a queue command."""

    deduplicated: bool
    queue: Queue


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a task command."""

    deduplicated: bool
    task: TaskSummary


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one item of a batch was refused."""

    code: str
    message: str
    details: Any = None


class BatchItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a batch: `outcome` ACCEPTED, DUPLICATE, REFUSED, or UNKNOWN (repeat it with the same key)."""

    outcome: str
    task: TaskSummary | None = None
    error: Refusal | None = None


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a batch in the order of its items."""

    items: list[BatchItemResult]


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of queues."""

    queues: list[Queue]
    next_cursor: str | None = None


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of tasks."""

    tasks: list[TaskSummary]
    next_cursor: str | None = None


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of attempts."""

    attempts: list[Attempt]
    next_cursor: str | None = None


class DispatcherList(msgspec.Struct, frozen=True, kw_only=True):
    """The live dispatchers."""

    dispatchers: list[Dispatcher]


class Envelope(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What every successful answer is wrapped in."""

    request_id: str
    data: T


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a failed answer."""

    code: str
    message: str
    details: Any = None


class ErrorEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What every refusal is wrapped in."""

    error: ErrorBody
    request_id: str = ""
