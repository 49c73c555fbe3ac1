"""Task and attempt routes of the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import msgspec
import trio

from orbit_sdk._calls import Calls, segment
from orbit_sdk._json import encode, time_text
from orbit_sdk._models import (
    Attempt,
    AttemptPage,
    BatchItem,
    BatchItemResult,
    BatchResult,
    Envelope,
    SubmitTask,
    Task,
    TaskPage,
    TaskResult,
    TaskSummary,
)

UNFINISHED_STATES: Final = frozenset({"WAITING", "LEASED", "RUNNING"})
FIRST_POLL_SECONDS: Final = 0.05
LONGEST_POLL_SECONDS: Final = 1.0
_TASK: Final = msgspec.json.Decoder(Envelope[Task], strict=False)
_TASKS: Final = msgspec.json.Decoder(Envelope[TaskPage], strict=False)
_RESULT: Final = msgspec.json.Decoder(Envelope[TaskResult], strict=False)
_BATCH: Final = msgspec.json.Decoder(Envelope[BatchResult], strict=False)
_ATTEMPT: Final = msgspec.json.Decoder(Envelope[Attempt], strict=False)
_ATTEMPTS: Final = msgspec.json.Decoder(Envelope[AttemptPage], strict=False)

S = TypeVar("S", bound=SubmitTask)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """What a list of tasks shows: one queue, and where given a state, a business key, a span of creation times."""

    queue_id: str
    state: str | None = None
    business_key: str | None = None
    created_from: datetime | str | None = None
    created_before: datetime | str | None = None

    def query(self) -> dict[str, str]:
        """The query parameters of this filter."""
        query = {"queue_id": self.queue_id}
        if self.state is not None:
            query["state"] = self.state
        if self.business_key is not None:
            query["business_key"] = self.business_key
        if self.created_from is not None:
            query["created_from"] = time_text(self.created_from)
        if self.created_before is not None:
            query["created_before"] = time_text(self.created_before)
        return query


class TaskCalls:
    """Submit, read and cancel tasks."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def submit(self, command: SubmitTask, *, idempotency_key: str) -> TaskResult:
        """Accept one task durably; the answer is its snapshot at acceptance."""
        body = encode(_with_time_texts(command))
        return (await self._calls.write("/v1/tasks", body, _RESULT, key=idempotency_key)).data

    async def submit_batch(self, items: Sequence[BatchItem]) -> list[BatchItemResult]:
        """Accept up to 32 tasks, each under its own key and on its own; the answers come in the same order."""
        body = encode({"items": [_with_time_texts(item) for item in items]})
        return (await self._calls.write("/v1/tasks:batch", body, _BATCH, key=None)).data.items

    async def get_task(self, task_id: str) -> Task:
        """One task with its payload and, once SUCCEEDED, its output."""
        return (await self._calls.read(f"/v1/tasks/{segment(task_id)}", _TASK)).data

    async def wait_until_ended(self, task_id: str) -> Task:
        """Poll until a task is SUCCEEDED, FAILED or CANCELLED, or is up to a person as NEEDS_REVIEW; the task then.

        The pause between reads grows from 50 ms to a second; bound the whole with `trio.fail_after`.
        """
        pause = FIRST_POLL_SECONDS
        while (task := await self.get_task(task_id)).state in UNFINISHED_STATES:
            await trio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
        return task

    async def cancel_task(
        self, task_id: str, *, idempotency_key: str, reason: str | None = None
    ) -> TaskResult:
        """Cancel a task at once while it waits; a running one learns of the intent and ends by itself."""
        body = encode({} if reason is None else {"reason": reason})
        path = f"/v1/tasks/{segment(task_id)}:cancel"
        return (await self._calls.write(path, body, _RESULT, key=idempotency_key)).data

    async def list_tasks(
        self, filters: TaskFilter, *, limit: int | None = None, cursor: str | None = None
    ) -> TaskPage:
        """One page of a queue's tasks; a cursor belongs to the filters that it came from."""
        query = filters.query() | _page_query(limit, cursor)
        return (await self._calls.read("/v1/tasks", _TASKS, query)).data

    async def iterate_tasks(
        self, filters: TaskFilter, *, limit: int | None = None
    ) -> AsyncIterator[TaskSummary]:
        """All tasks that match, page by page; an error ends the iteration, nothing is skipped."""
        cursor: str | None = None
        while True:
            page = await self.list_tasks(filters, limit=limit, cursor=cursor)
            for task in page.tasks:
                yield task
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get_attempt(self, task_id: str, n: int) -> Attempt:
        """The n-th attempt of a task, with its output."""
        return (await self._calls.read(f"/v1/tasks/{segment(task_id)}/attempts/{n}", _ATTEMPT)).data

    async def list_attempts(
        self, task_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> AttemptPage:
        """One page of a task's attempts."""
        path = f"/v1/tasks/{segment(task_id)}/attempts"
        return (await self._calls.read(path, _ATTEMPTS, _page_query(limit, cursor))).data

    async def iterate_attempts(self, task_id: str, *, limit: int | None = None) -> AsyncIterator[Attempt]:
        """All attempts of a task, page by page; an error ends the iteration, nothing is skipped."""
        cursor: str | None = None
        while True:
            page = await self.list_attempts(task_id, limit=limit, cursor=cursor)
            for attempt in page.attempts:
                yield attempt
            cursor = page.next_cursor
            if cursor is None:
                return


def _page_query(limit: int | None, cursor: str | None) -> dict[str, str]:
    query: dict[str, str] = {}
    if limit is not None:
        query["limit"] = str(limit)
    if cursor is not None:
        query["cursor"] = cursor
    return query


def _with_time_texts(command: S) -> S:
    if command.available_at is None and command.start_deadline_at is None:
        return command
    times = {
        name: time_text(value)
        for name in ("available_at", "start_deadline_at")
        if (value := getattr(command, name)) is not None
    }
    return msgspec.structs.replace(command, **times)
