"""Dispatch order: a level of priority is worth 30 seconds of waiting (01-architecture "Claiming").

So a high priority overtakes, and a low one is never starved: it is overtaken only by what comes within 4.5 minutes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from orbit.domain.limits import PRIORITY_STEP_MS


def dispatch_at(available_at: datetime, priority: int) -> datetime:
    """Return the instant by which ready tasks are ordered, ascending (the same as the generated column)."""
    return available_at - timedelta(milliseconds=PRIORITY_STEP_MS * priority)
