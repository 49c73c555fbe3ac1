"""Wait for something to become true, bounded; the proof is the condition, never the time that has passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PAUSE_SECONDS = 0.02


def eventually(
    condition: Callable[[], Found], *, within: float = 10.0, what: str = "", pause: float = PAUSE_SECONDS
) -> Found:
    """Ask until `condition` returns something true, and return it.

    Raises:
        AssertionError: it didn't within that many seconds; the message says what was awaited and the last answer.
    """
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            awaited = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"not within {within:g} s: {awaited} (last: {found!r})")
        time.sleep(pause)
