"""Callers of the HTTP API, by the SDK's client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import trio

from bench.jobs import HANDLER, VERSION, job
from bench.probe import now
from orbit_sdk import BatchItem, Client, SubmitTask

BATCH: Final = 32


class Rate(NamedTuple):
    """Tasks that were acknowledged, and the seconds that took."""

    tasks: int
    seconds: float


class Target(NamedTuple):
    """Whom to call: an API's URL, a token, a queue's id."""

    url: str
    token: str
    queue: str


async def submit_for(target: Target, *, seconds: float, callers: int) -> Rate:
    """Submit one task per call from so many callers; a task counts once its call has returned."""
    numbers, done = count(), 0
    run = uuid.uuid4().hex

    async with Client(target.url, target.token, connections=callers) as client:

        async def call() -> None:
            n = next(numbers)
            await client.submit(_task(target, n), idempotency_key=f"{run}-{n}")

        async def caller() -> None:
            nonlocal done
            while time.monotonic() < end:
                await call()
                done += 1

        await _together(call, callers)
        began = time.monotonic()
        end = began + seconds
        await _together(caller, callers)
        return Rate(done, time.monotonic() - began)


async def submit_batches(
    target: Target,
    payloads: Sequence[Any],
    *,
    callers: int,
    key: Callable[[Any], str | None] = lambda _: None,
) -> Rate:
    """Submit tasks with these payloads in batches of 32 from so many callers; `key` gives each one's resource key.

    Raises: RuntimeError for an item that wasn't accepted.
    """
    run = uuid.uuid4().hex
    starts = iter(range(0, len(payloads), BATCH))
    async with Client(target.url, target.token, connections=callers) as client:

        async def caller() -> None:
            for start in starts:
                part = enumerate(payloads[start : start + BATCH], start)
                await _send(
                    client, [_item(target, f"{run}-{n}", payload, key(payload)) for n, payload in part]
                )

        await _together(client.check_ready, callers)
        began = time.monotonic()
        await _together(caller, callers)
        return Rate(len(payloads), time.monotonic() - began)


async def submit_paced(target: Target, *, tasks: int, interval: float) -> None:
    """Submit one task each `interval` seconds; its payload says when, just before the call."""
    run = uuid.uuid4().hex
    async with Client(target.url, target.token, connections=2) as client:
        await client.check_ready()
        began = trio.current_time()
        for n in range(tasks):
            await trio.sleep_until(began + n * interval)
            await client.submit(_task(target, n, at=now()), idempotency_key=f"{run}-{n}")


async def _send(client: Client, items: Sequence[BatchItem]) -> None:
    """Submit one batch. Raises: RuntimeError for an item that wasn't accepted."""
    for answer in await client.submit_batch(items):
        if answer.outcome != "ACCEPTED":
            raise RuntimeError(f"an item of a batch is {answer.outcome}: {answer.error}")


async def _together(work: Callable[[], Awaitable[None]], callers: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(work)


def _task(target: Target, number: int, *, at: float = 0.0) -> SubmitTask:
    return SubmitTask(
        queue_id=target.queue,
        handler=HANDLER,
        handler_version=VERSION,
        payload_version="v1",
        payload=job(number, at=at),
    )


def _item(target: Target, identity: str, payload: Any, key: str | None) -> BatchItem:
    return BatchItem(
        idempotency_key=identity,
        queue_id=target.queue,
        handler=HANDLER,
        handler_version=VERSION,
        payload_version="v1",
        payload=payload,
        concurrency_key=key,
    )
