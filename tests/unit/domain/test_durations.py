"""Spans in whole milliseconds: promises are rounded down, waits up, and neither is ever negative."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from orbit.domain.durations import earlier, ms_left, ms_to_wait

NOW = datetime(2026, 1, 31, 8)


@pytest.mark.parametrize(
    ("microseconds", "left", "wait"),
    [(-1_001, 0, 0), (-1, 0, 0), (0, 0, 0), (1, 0, 1), (999, 0, 1), (1_000, 1, 1), (1_001, 1, 2)],
)
def test_what_is_left_is_rounded_down_and_what_is_waited_for_up(
    microseconds: int, left: int, wait: int
) -> None:
    until = NOW + timedelta(microseconds=microseconds)
    assert (ms_left(until, NOW), ms_to_wait(until, NOW)) == (left, wait)


def test_the_earlier_of_two_instants_and_the_only_one_of_one() -> None:
    later = NOW + timedelta(seconds=1)
    assert earlier(later, NOW) == earlier(NOW, later) == earlier(NOW, None) == NOW
