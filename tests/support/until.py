"""Wait, with the event loop going on, for what other tasks or processes bring about; the condition is the proof."""

from __future__ import annotations

from collections.abc import Callable

import trio


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Return once the condition holds; fail when it doesn't within so many seconds."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for may lie in another process
            await trio.sleep(0.02)
