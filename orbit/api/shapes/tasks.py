"""What callers may send about tasks (docs/http.md): submit, cancel."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from orbit.api.shapes.fields import (
    Id,
    Shape,
    Time,
    key_field,
    name_field,
)
from orbit.domain import limits
from orbit.domain.errors import InvalidArgument, PayloadTooLarge
from orbit.domain.ids import new_id, parse_id
from orbit.domain.keys import (
    check_business_key,
    check_concurrency_key,
    check_handler,
    check_text_storable,
    check_version,
)
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from orbit.domain.strictjson import decode
from orbit.domain.wire import parse_time
from orbit.kernel.caller import Token
from orbit.pulse.commands import CancelTask, SubmitTask

Handler = Annotated[str, name_field("who executes the task", limits.HANDLER_MAX_CHARS)]
Version = Annotated[str, name_field("matched exactly", limits.VERSION_MAX_CHARS)]
BusinessKey = Annotated[
    str, key_field("for tracing only; empty counts as absent", limits.BUSINESS_KEY_MAX_CHARS)
]
ConcurrencyKey = Annotated[
    str,
    key_field(
        "at most one live attempt per namespace and key; empty counts as absent",
        limits.CONCURRENCY_KEY_MAX_CHARS,
    ),
]
Priority = Annotated[
    int, Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX, description="each step counts as 30 s")
]
Delay = Annotated[int, Meta(ge=0, le=limits.DELAY_MAX_MS, description="0 counts as absent")]
Timeout = Annotated[int, Meta(ge=limits.TIMEOUT_MIN_MS, le=limits.TIMEOUT_MAX_MS)]
MaxAttempts = Annotated[int, Meta(ge=limits.ATTEMPTS_MIN, le=limits.ATTEMPTS_MAX)]
BackoffTime = Annotated[int, Meta(ge=0, le=limits.BACKOFF_MAX_MS)]
CancelReason = Annotated[str, Meta(extra_json_schema={"maxLength": limits.REASON_MAX_CHARS})]


class RetryBody(Shape, frozen=True, kw_only=True):
    max_attempts: MaxAttempts = limits.ATTEMPTS_DEFAULT
    backoff: Backoff = Backoff.NONE
    initial_ms: BackoffTime = 0
    max_ms: BackoffTime = limits.BACKOFF_MAX_DEFAULT_MS


class SubmitBody(Shape, frozen=True, kw_only=True):
    """At most one of `delay_ms` and `available_at`."""

    queue_id: Id
    handler: Handler
    handler_version: Version
    payload_version: Version
    payload: Raw
    business_key: BusinessKey = ""
    concurrency_key: ConcurrencyKey = ""
    priority: Priority = limits.PRIORITY_MIN
    delay_ms: Delay = 0
    available_at: Time | UnsetType = UNSET
    start_deadline_at: Time | UnsetType = UNSET
    timeout_ms: Timeout | UnsetType = UNSET
    attempt_timeout_ms: Timeout | UnsetType = UNSET
    retry: RetryBody | UnsetType = UNSET
    on_unknown: OnUnknown | UnsetType = UNSET


class CancelBody(Shape, frozen=True, kw_only=True):
    reason: CancelReason = ""


def parse_submit(token: Token, idempotency_key: str, body: bytes) -> SubmitTask:
    """Parse the body of `POST /v1/tasks`.

    Raises: InvalidArgument naming the field; PayloadTooLarge.
    """
    return build_submit(token, idempotency_key, decode(body, SubmitBody, around=1))


def build_submit(token: Token, idempotency_key: str, shape: SubmitBody) -> SubmitTask:
    """Check what the types can't say, and make the command."""
    payload = bytes(shape.payload)
    if len(payload) > limits.PAYLOAD_MAX_BYTES:
        raise PayloadTooLarge(
            f"payload: must have at most {limits.PAYLOAD_MAX_BYTES} bytes", details={"field": "payload"}
        )
    available_at = None if shape.available_at is UNSET else parse_time(shape.available_at, "available_at")
    start_deadline_at = (
        None if shape.start_deadline_at is UNSET else parse_time(shape.start_deadline_at, "start_deadline_at")
    )
    if available_at is not None and shape.delay_ms:
        raise InvalidArgument("excludes available_at", field="delay_ms")
    if available_at is not None and start_deadline_at is not None and start_deadline_at <= available_at:
        raise InvalidArgument("must lie after available_at", field="start_deadline_at")
    return SubmitTask(
        token=token,
        idempotency_key=idempotency_key,
        task_id=new_id(),
        queue_id=parse_id(shape.queue_id, "queue_id"),
        handler=check_handler(shape.handler),
        handler_version=check_version(shape.handler_version),
        payload_version=check_version(shape.payload_version, "payload_version"),
        payload=payload,
        business_key=check_business_key(shape.business_key),
        concurrency_key=check_concurrency_key(shape.concurrency_key),
        priority=shape.priority,
        delay_ms=shape.delay_ms or None,
        available_at=available_at,
        start_deadline_at=start_deadline_at,
        timeout_ms=None if shape.timeout_ms is UNSET else shape.timeout_ms,
        attempt_timeout_ms=None if shape.attempt_timeout_ms is UNSET else shape.attempt_timeout_ms,
        retry=None if shape.retry is UNSET else _policy(shape.retry),
        on_unknown=None if shape.on_unknown is UNSET else shape.on_unknown,
    )


def parse_cancel(token: Token, idempotency_key: str, task_id: bytes, body: bytes) -> CancelTask:
    """Parse the body of `POST /v1/tasks/{id}:cancel`; an empty one counts as `{}`."""
    reason = decode(body, CancelBody).reason if body.strip() else ""
    if len(reason) > limits.REASON_MAX_CHARS:
        raise InvalidArgument(f"must have at most {limits.REASON_MAX_CHARS} characters", field="reason")
    check_text_storable(reason, "reason")
    return CancelTask(token=token, idempotency_key=idempotency_key, task_id=task_id, reason=reason)


def _policy(retry: RetryBody) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=retry.max_attempts,
        backoff=retry.backoff,
        initial_ms=retry.initial_ms,
        max_ms=retry.max_ms,
    )
