"""A level of priority is worth thirty seconds."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from orbit.domain.priority import dispatch_at

NOON = datetime(2026, 1, 31, 12)


def test_priority_moves_a_task_forward_by_thirty_seconds_a_level() -> None:
    assert dispatch_at(NOON, 0) == NOON
    assert dispatch_at(NOON, 9) == NOON - timedelta(seconds=270)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(271, 10_000))
def test_no_priority_overtakes_a_wait_of_more_than_nine_levels(one: int, other: int, later: int) -> None:
    assert dispatch_at(NOON, one) < dispatch_at(NOON + timedelta(seconds=later), other)
