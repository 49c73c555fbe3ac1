"""Queues over HTTP (docs/http.md)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from orbit.api.shapes.fields import Answer, Id, Shape, Uint64, name_field
from orbit.domain import limits
from orbit.domain.ids import id_text, new_id
from orbit.domain.keys import check_name, check_reason
from orbit.domain.strictjson import decode
from orbit.domain.wire import parse_uint64, uint64_text
from orbit.kernel.caller import Token
from orbit.pulse.commands import ConfigureQueue, CreateQueue, QueueAnswer
from orbit.pulse.paging import Page
from orbit.pulse.views import QueueView

QueueName = Annotated[str, name_field("unique in the namespace", limits.QUEUE_NAME_MAX_CHARS)]
Concurrency = Annotated[int, Meta(ge=1, le=limits.QUEUE_CONCURRENCY_MAX, description="most live attempts")]
Rate = Annotated[int, Meta(ge=1, le=limits.QUEUE_RATE_MAX, description="Starts per one-second window")]
Backlog = Annotated[int, Meta(ge=1, le=limits.QUEUE_UNFINISHED_MAX, description="most unfinished tasks")]
BacklogOrDefault = Annotated[
    int,
    Meta(
        ge=0,
        le=limits.QUEUE_UNFINISHED_MAX,
        description=f"most unfinished tasks; 0 means {limits.QUEUE_UNFINISHED_DEFAULT}",
    ),
]
Reason = Annotated[
    str, Meta(description="kept in the audit", extra_json_schema={"maxLength": limits.REASON_MAX_CHARS})
]


class CreateQueueBody(Shape, frozen=True, kw_only=True):
    name: QueueName
    max_concurrency: Concurrency
    rate_per_second: Rate
    max_unfinished_tasks: BacklogOrDefault = 0


class ConfigureQueueBody(Shape, frozen=True, kw_only=True):
    """Replaces all control values."""

    expected_revision: Uint64
    reason: Reason
    paused: bool
    max_concurrency: Concurrency
    rate_per_second: Rate
    max_unfinished_tasks: Backlog


class Queue(Answer, frozen=True, kw_only=True):
    """`unfinished_tasks` is live usage; changes of it don't raise the revision."""

    id: Id
    namespace_id: Id
    name: QueueName
    paused: bool
    max_concurrency: int
    rate_per_second: int
    max_unfinished_tasks: int
    unfinished_tasks: Uint64
    revision: Uint64


class QueueWritten(Answer, frozen=True, kw_only=True):
    deduplicated: bool
    queue: Queue


class QueueList(Answer, frozen=True, kw_only=True):
    queues: list[Queue]
    next_cursor: str | UnsetType = UNSET


def parse_create(token: Token, idempotency_key: str, body: bytes) -> CreateQueue:
    """Parse the body of `POST /v1/queues`; InvalidArgument names the field."""
    shape = decode(body, CreateQueueBody)
    return CreateQueue(
        token=token,
        idempotency_key=idempotency_key,
        queue_id=new_id(),
        name=check_name(shape.name, "name"),
        max_concurrency=shape.max_concurrency,
        rate_per_second=shape.rate_per_second,
        max_unfinished_tasks=shape.max_unfinished_tasks,
    )


def parse_configure(token: Token, idempotency_key: str, queue_id: bytes, body: bytes) -> ConfigureQueue:
    """Parse the body of `POST /v1/queues/{id}:configure`; InvalidArgument names the field."""
    shape = decode(body, ConfigureQueueBody)
    return ConfigureQueue(
        token=token,
        idempotency_key=idempotency_key,
        queue_id=queue_id,
        expected_revision=parse_uint64(shape.expected_revision, "expected_revision", minimum=1),
        reason=check_reason(shape.reason),
        paused=shape.paused,
        max_concurrency=shape.max_concurrency,
        rate_per_second=shape.rate_per_second,
        max_unfinished_tasks=shape.max_unfinished_tasks,
    )


def render_queue(view: QueueView) -> Queue:
    return Queue(
        id=id_text(view.queue_id),
        namespace_id=id_text(view.namespace_id),
        name=view.name,
        paused=view.paused,
        max_concurrency=view.max_concurrency,
        rate_per_second=view.rate_per_second,
        max_unfinished_tasks=view.max_unfinished_tasks,
        unfinished_tasks=uint64_text(view.unfinished_tasks),
        revision=uint64_text(view.revision),
    )


def render_written(answer: QueueAnswer) -> QueueWritten:
    return QueueWritten(deduplicated=answer.deduplicated, queue=render_queue(answer.queue))


def render_list(page: Page[QueueView]) -> QueueList:
    return QueueList(
        queues=[render_queue(view) for view in page.items],
        next_cursor=UNSET if page.next_cursor is None else page.next_cursor,
    )
