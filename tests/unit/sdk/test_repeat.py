"""Repeating one command under its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from orbit_sdk import APIError, OutcomeUnknown, TransportError, repeat


def script(*steps: Exception | str) -> tuple[Callable[[], Awaitable[str]], list[float]]:
    """A command that raises or returns its steps in order, and the times of its calls."""
    times: list[float] = []

    async def command() -> str:
        step = steps[min(len(times), len(steps) - 1)]
        times.append(trio.current_time())
        if isinstance(step, Exception):
            raise step
        return step

    return command, times


def full(retry_after: int = 0) -> APIError:
    return APIError("QUEUE_FULL", 429, "full", retry_after=retry_after)


async def test_it_paces_itself_by_retry_after(autojump_clock: trio.testing.MockClock) -> None:
    """The server's pause, with up to half of it added."""
    command, times = script(full(2), OutcomeUnknown("lost"), "accepted")
    assert await repeat(command, deadline=60, jitter=lambda: 1.0) == "accepted"
    assert times[1] - times[0] == pytest.approx(3.0)
    assert times[2] - times[1] == pytest.approx(0.3)


async def test_other_refusals_are_final(autojump_clock: trio.testing.MockClock) -> None:
    """A conflict is an answer."""
    command, times = script(APIError("IDEMPOTENCY_CONFLICT", 409, "other content"))
    with pytest.raises(APIError):
        await repeat(command, deadline=60)
    assert len(times) == 1


async def test_the_deadline_ends_it_and_doubt_outlives_later_refusals(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Once an answer was lost, being full later does not prove that nothing was accepted."""
    command, times = script(OutcomeUnknown("lost"), full(1))
    with pytest.raises(OutcomeUnknown):
        await repeat(command, deadline=5, jitter=lambda: 0.0)
    assert times[-1] - times[0] <= 5
    command, _ = script(full(1))
    with pytest.raises(APIError):
        await repeat(command, deadline=5, jitter=lambda: 0.0)
    command, _ = script(TransportError("refused"))
    with pytest.raises(TransportError, match="refused"):
        await repeat(command, deadline=5, jitter=lambda: 0.0)


async def test_a_command_that_hangs_is_cut_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    """The time limit covers the call itself."""
    started = trio.current_time()
    with pytest.raises(OutcomeUnknown):
        await repeat(trio.sleep_forever, deadline=5)
    assert trio.current_time() - started == pytest.approx(5)
