"""An explicit, opt-in loop that repeats one command under its key until an answer settles it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from orbit_sdk._errors import APIError, OutcomeUnknown, TransportError

T = TypeVar("T")
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
# Refusals that leave no identity behind and may pass by themselves.
_PASSING_CODES: Final = frozenset(
    {"QUEUE_FULL", "QUOTA_EXCEEDED", "UNAVAILABLE", "REQUEST_TIMEOUT", "RATE_LIMITED"}
)


async def repeat(
    command: Callable[[], Awaitable[T]], *, deadline: float, jitter: Callable[[], float] = random.random
) -> T:
    """Call `command` until it is answered, for at most `deadline` seconds.

    The command must be the same each time, its idempotency key included:
    `await repeat(lambda: client.submit(task, idempotency_key=key), deadline=10)`. Repeats follow a lost answer, a
    network failure, and the refusals that pass by themselves; the pause is the server's `retry_after` where it
    gives one, else it doubles from 0.1 s to 5 s; up to half is added at random. When the time is over the last
    error is raised: an `OutcomeUnknown` once any answer has been lost, because then only this key can tell.
    """
    ends_at = trio.current_time() + deadline
    doubt: OutcomeUnknown | None = None
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            with trio.move_on_at(ends_at):
                return await command()
            raise doubt or OutcomeUnknown("the deadline passed before an answer came")
        except TransportError as exc:
            if trio.current_time() >= ends_at:
                raise
            failure: TransportError | APIError = exc
            if isinstance(exc, OutcomeUnknown):
                doubt = exc
            wait = pause
        except APIError as exc:
            if exc.code not in _PASSING_CODES:
                raise
            failure = exc
            wait = float(exc.retry_after) or pause
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        wait *= 1 + jitter() / 2
        if trio.current_time() + wait >= ends_at:
            raise doubt or failure
        await trio.sleep(wait)
