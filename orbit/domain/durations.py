"""Spans of time between instants of the database's clock, in whole milliseconds as they travel (`_ms`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

MILLISECOND: Final = timedelta(milliseconds=1)


def ms_left(until: datetime, now: datetime) -> int:
    """Return the milliseconds from `now` to `until`, at least 0; rounded down: nobody is told more than there is."""
    return max(0, (until - now) // MILLISECOND)


def ms_to_wait(until: datetime, now: datetime) -> int:
    """Return the milliseconds from `now` to `until`, at least 0; rounded up: to wake early is to look twice."""
    return max(0, -((now - until) // MILLISECOND))


def earlier(instant: datetime, bound: datetime | None) -> datetime:
    """Return the earlier of the two; without a bound, `instant`."""
    return instant if bound is None else min(instant, bound)
