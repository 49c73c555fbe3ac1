"""Background loops: a bounded pass again and again, with jitter, backing off on errors, ended by cancellation only."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from orbit.runtime.logging import get_logger

FIRST_BACKOFF_SECONDS: Final = 0.2
MAX_BACKOFF_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A pass and its pace: `run_once` handles up to `limit` items and returns how many; a full pass is repeated at
    once, otherwise the next one starts after `interval_seconds` (± 20 %).
    """

    name: str
    interval_seconds: float
    limit: int
    run_once: Callable[[], Awaitable[int]]


async def run_loop(loop: Loop) -> None:
    """Run a loop until it is cancelled. An error is logged and slows it down; it never ends it or its siblings."""
    failures = 0
    while True:
        try:
            done = await loop.run_once()
        except Exception as error:  # noqa: BLE001 - whatever failed, the next pass may succeed
            failures += 1
            pause = backoff_seconds(failures)
            get_logger().warning(
                "loop_failed", loop=loop.name, failures=failures, pause_seconds=round(pause, 2), error=error
            )
        else:
            if failures:
                get_logger().info("loop_recovered", loop=loop.name, failures=failures)
            failures = 0
            pause = 0.0 if done >= loop.limit else loop.interval_seconds * random.uniform(0.8, 1.2)
        await trio.sleep(pause)


def backoff_seconds(failures: int) -> float:
    """Return the pause after so many failures in a row: from 0.2 s to 10 s, half of it random."""
    longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
    return random.uniform(longest / 2, longest)
