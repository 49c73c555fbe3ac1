"""Tasks as the API shows them (docs/http.md)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, UnsetType

from orbit.api.shapes.fields import (
    Answer,
    ErrorPair,
    Id,
    Json,
    Time,
    Uint64,
    error_or_unset,
    some,
    time_or_unset,
)
from orbit.domain.ids import id_text
from orbit.domain.states import OnUnknown, TaskState
from orbit.domain.wire import format_time, uint64_text
from orbit.pulse.commands import TaskAnswer
from orbit.pulse.paging import Page
from orbit.pulse.views import TaskDetail, TaskView


class Retry(Answer, frozen=True, kw_only=True):
    max_attempts: int
    backoff: str
    initial_ms: int
    max_ms: int


class TaskSummary(Answer, frozen=True, kw_only=True):
    """A task in a list."""

    id: Id
    namespace_id: Id
    queue_id: Id
    handler: str
    handler_version: str
    payload_version: str
    state: TaskState
    revision: Uint64
    priority: int
    created_at: Time
    updated_at: Time
    available_at: Time
    attempts_used: int
    max_attempts: int
    epoch: Uint64
    business_key: str | UnsetType = UNSET
    concurrency_key: str | UnsetType = UNSET
    start_deadline_at: Time | UnsetType = UNSET
    deadline_at: Time | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    attempt_timeout_ms: int | UnsetType = UNSET
    delay_ms: int | UnsetType = UNSET
    on_unknown: OnUnknown | UnsetType = UNSET
    cancel_requested_at: Time | UnsetType = UNSET
    finished_at: Time | UnsetType = UNSET
    error: ErrorPair | UnsetType = UNSET


class Task(TaskSummary, frozen=True, kw_only=True):
    """A task by itself; `payload` and `output` only when it is read by id."""

    retry: Retry | UnsetType = UNSET
    payload: Json | UnsetType = UNSET
    output: Json | UnsetType = UNSET


class TaskWritten(Answer, frozen=True, kw_only=True):
    deduplicated: bool
    task: Task


class TaskList(Answer, frozen=True, kw_only=True):
    tasks: list[TaskSummary]
    next_cursor: str | UnsetType = UNSET


def render_written(answer: TaskAnswer) -> TaskWritten:
    return TaskWritten(deduplicated=answer.deduplicated, task=render_task(answer.task))


def render_detail(detail: TaskDetail) -> Task:
    """Render a task with the exact bytes of its payload and output."""
    return render_task(
        detail.task,
        payload=Raw(detail.payload),
        output=UNSET if detail.output is None else Raw(detail.output),
    )


def render_task(view: TaskView, *, payload: Raw | UnsetType = UNSET, output: Raw | UnsetType = UNSET) -> Task:
    return Task(
        **_common(view),
        retry=Retry(
            max_attempts=view.max_attempts,
            backoff=view.backoff,
            initial_ms=view.backoff_initial_ms,
            max_ms=view.backoff_max_ms,
        ),
        payload=payload,
        output=output,
    )


def render_list(page: Page[TaskView]) -> TaskList:
    return TaskList(
        tasks=[TaskSummary(**_common(view)) for view in page.items], next_cursor=some(page.next_cursor)
    )


def _common(view: TaskView) -> dict[str, Any]:
    return {
        "id": id_text(view.task_id),
        "namespace_id": id_text(view.namespace_id),
        "queue_id": id_text(view.queue_id),
        "handler": view.handler,
        "handler_version": view.handler_version,
        "payload_version": view.payload_version,
        "state": view.state,
        "revision": uint64_text(view.revision),
        "priority": view.priority,
        "created_at": format_time(view.created_at),
        "updated_at": format_time(view.updated_at),
        "available_at": format_time(view.available_at),
        "attempts_used": view.attempts_used,
        "max_attempts": view.max_attempts,
        "epoch": uint64_text(view.epoch),
        "business_key": some(view.business_key),
        "concurrency_key": some(view.concurrency_key),
        "start_deadline_at": time_or_unset(view.start_deadline_at),
        "deadline_at": time_or_unset(view.deadline_at),
        "timeout_ms": some(view.timeout_ms),
        "attempt_timeout_ms": some(view.attempt_timeout_ms),
        "delay_ms": some(view.delay_ms),
        "on_unknown": some(view.on_unknown),
        "cancel_requested_at": time_or_unset(view.cancel_requested_at),
        "finished_at": time_or_unset(view.finished_at),
        "error": error_or_unset(view.error_code, view.error_message),
    }
