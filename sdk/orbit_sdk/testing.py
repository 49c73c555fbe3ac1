"""Run a handler without a server: the same calling, decoding, cancelling and outcomes as in a worker."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import trio
from msgspec import Raw

from orbit_sdk._execution import Lease
from orbit_sdk._handlers import Handler, Running, build_execution, build_handler
from orbit_sdk._json import encode
from orbit_sdk._messages import UINT64_MAX, Assign, TaskInfo
from orbit_sdk._outcomes import Outcome

__all__ = ["Outcome", "run_handler"]


async def run_handler(  # noqa: PLR0913 - keyword options with defaults
    handler: Callable[..., Any],
    *,
    payload: Any = None,
    concurrency_token: int | None = None,
    concurrency_key: str | None = None,
    cancel_after: float | None = None,
    deadline: float | None = None,
    lease: float = 30.0,
    attempt_number: int = 1,
    max_attempts: int = 1,
    effect: str | None = None,
) -> Outcome:
    """Run `handler` once and return the outcome that a worker would report.

    `payload` is any JSON value, or `Raw` for exact bytes. With a `concurrency_token` the task has a key, "test-key"
    unless given. After `cancel_after` seconds `e.cancelled` is set, after `deadline` seconds the handler is cancelled
    (outcome RETRY with ATTEMPT_TIMEOUT), after `lease` seconds `e.lease_lapsed` is true; use an autojump clock to
    not wait for them.
    """
    if concurrency_token is not None and not 0 < concurrency_token <= UINT64_MAX:
        raise ValueError("a concurrency token is a non-zero uint64")
    if concurrency_key is not None and concurrency_token is None:
        raise ValueError("a keyed task has a token")
    built = build_handler(handler, "test.handler", version="v1", effect=effect)
    task = TaskInfo(
        id=secrets.token_hex(16),
        queue_id=secrets.token_hex(16),
        handler="test.handler",
        handler_version="v1",
        payload_version="v1",
        payload=Raw(encode(payload)),
        attempt_number=attempt_number,
        max_attempts=max_attempts,
        concurrency_key=concurrency_key or (None if concurrency_token is None else "test-key"),
    )
    assign = Assign(
        attempt_id=secrets.token_hex(16),
        epoch=str(attempt_number),
        lease_ms=round(lease * 1000),
        task=task,
        concurrency_token=None if concurrency_token is None else str(concurrency_token),
    )
    return await _run(assign, built, cancel_after=cancel_after, deadline=deadline)


async def _run(
    assign: Assign, handler: Handler, *, cancel_after: float | None, deadline: float | None
) -> Outcome:
    now = trio.current_time()
    execution = build_execution(
        assign,
        handler,
        lease=Lease(now + assign.lease_ms / 1000),
        deadline=None if deadline is None else now + deadline,
    )
    async with trio.open_nursery() as nursery:
        if cancel_after is not None:
            nursery.start_soon(_set_after, cancel_after, execution.cancelled)
        outcome = await Running(handler, execution).run()
        nursery.cancel_scope.cancel()
    return outcome


async def _set_after(seconds: float, event: trio.Event) -> None:
    await trio.sleep(seconds)
    event.set()
