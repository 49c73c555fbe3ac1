"""Background loops keep their pace, go on at once after a full pass, and outlive every error."""

from __future__ import annotations

import itertools

import pytest
import trio
from trio.testing import MockClock

from orbit.runtime.runner import MAX_BACKOFF_SECONDS, Loop, backoff_seconds, run_loop

LIMIT = 5


async def gaps_between(results: list[int | Exception]) -> list[float]:
    """Run a loop whose passes have these results; return the pauses between their beginnings, in seconds."""
    began: list[float] = []
    ended = trio.Event()

    async def run_once() -> int:
        began.append(trio.current_time())
        if len(began) > len(results):
            ended.set()
            await trio.sleep_forever()
        result = results[len(began) - 1]
        if isinstance(result, Exception):
            raise result
        return result

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_loop, Loop(name="x", interval_seconds=10, limit=LIMIT, run_once=run_once))
        await ended.wait()
        nursery.cancel_scope.cancel()
    return [after - before for before, after in itertools.pairwise(began)]


async def test_a_pass_that_found_little_waits(autojump_clock: MockClock) -> None:
    """The interval, give or take a fifth, so that processes don't march in step."""
    gaps = await gaps_between([0, 1, LIMIT - 1] * 5)
    assert all(8 <= gap <= 12 for gap in gaps)
    assert len(set(gaps)) > 5


async def test_a_full_pass_goes_on_at_once(autojump_clock: MockClock) -> None:
    """As much as a pass may handle was handled: there is more."""
    assert await gaps_between([LIMIT, LIMIT + 1]) == [0, 0]


async def test_errors_slow_it_down_and_never_end_it(autojump_clock: MockClock) -> None:
    """C31: twenty failures in a row, of any kind, then work again at the usual pace."""
    errors: list[int | Exception] = [RuntimeError("x"), KeyError("y"), ValueError("z")] * 7
    gaps = await gaps_between([*errors, 0, RuntimeError("once more"), 0])
    failed, (quiet, again, last) = gaps[: len(errors)], gaps[len(errors) :]
    assert failed[0] <= 0.2
    assert all(MAX_BACKOFF_SECONDS / 2 <= gap <= MAX_BACKOFF_SECONDS for gap in failed[8:])
    assert 8 <= quiet <= 12
    assert again <= 0.2
    assert 8 <= last <= 12


@pytest.mark.parametrize("failures", [1, 5, 100, 10_000])
def test_backoff_is_bounded(failures: int) -> None:
    """However long it fails."""
    assert 0 < backoff_seconds(failures) <= MAX_BACKOFF_SECONDS
