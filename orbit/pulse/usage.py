"""Usage: the counters of one application and its queues while a transaction changes them, stored once at its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orbit.domain.durations import MILLISECOND, ms_to_wait
from orbit.domain.limits import RATE_WINDOW_MS
from orbit.store.sql.applications import ApplicationRow, lock_application, update_application_usage
from orbit.store.sql.queues import QueueRow, UsageValues, select_queues, update_usage
from orbit.store.transaction import Read, Tx

_WINDOW = RATE_WINDOW_MS * MILLISECOND


@dataclass(slots=True)
class QueueUse:
    """One queue's settings and its counters as they stand in this transaction."""

    row: QueueRow
    active: int
    leased_unstarted: int
    unfinished: int
    window_started_at: datetime | None
    window_count: int

    @classmethod
    def of(cls, row: QueueRow) -> QueueUse:
        return cls(row, *_stored(row))

    @property
    def values(self) -> UsageValues:
        return UsageValues(
            self.active, self.leased_unstarted, self.unfinished, self.window_started_at, self.window_count
        )

    @property
    def changed(self) -> bool:
        return self.values != _stored(self.row)

    def window_open(self, now: datetime) -> bool:
        """Tell whether the current rate window still counts; the first Start after its end opens the next."""
        return self.window_started_at is not None and now < self.window_started_at + _WINDOW

    def starts_left(self, now: datetime) -> int:
        """Return how many Starts the present window admits; below 0 after the rate was lowered."""
        return self.row.rate_per_second - (self.window_count if self.window_open(now) else 0)

    def window_left_ms(self, now: datetime) -> int:
        """Return the rest of the window in milliseconds, at least 1."""
        if self.window_started_at is None:
            return 1
        return max(1, ms_to_wait(self.window_started_at + _WINDOW, now))

    def count_start(self, now: datetime) -> None:
        if not self.window_open(now):
            self.window_started_at, self.window_count = now, 0
        self.window_count += 1
        self.leased_unstarted -= 1

    def claim_room(self, now: datetime) -> int:
        """Return how many tasks may be claimed: permits and Starts that nobody has reserved yet; 0 while paused."""
        if self.row.paused:
            return 0
        permits = self.row.max_concurrency - self.active
        starts = self.starts_left(now) - self.leased_unstarted
        return max(0, min(permits, starts))


class Usage:
    """The counters of one locked application. Made by `lock_usage`, stored by `flush`."""

    def __init__(self, tx: Tx, application: ApplicationRow) -> None:
        self._tx = tx
        self.application_id = application.application_id
        self._application = application
        self.unfinished = application.unfinished
        self.active = application.active
        self._queues: dict[bytes, QueueUse] = {}

    @property
    def unfinished_room(self) -> int:
        return self._application.max_unfinished - self.unfinished

    @property
    def active_room(self) -> int:
        return self._application.max_active - self.active

    def load(self, queue_ids: Iterable[bytes]) -> None:
        """Read queues of this application that aren't known yet; others stay unknown."""
        missing = sorted(set(queue_ids) - self._queues.keys())
        if missing:
            self.know(select_queues(self._tx, missing).values())

    def know(self, rows: Iterable[QueueRow]) -> None:
        """Take in queues that were read under the lock; those of other applications stay unknown."""
        for row in rows:
            if row.application_id == self.application_id:
                self._queues[row.queue_id] = QueueUse.of(row)

    def find(self, queue_id: bytes) -> QueueUse | None:
        return self._queues.get(queue_id)

    def queue(self, queue_id: bytes) -> QueueUse:
        return self._queues[queue_id]

    def add_unfinished(self, queue_id: bytes, difference: int) -> None:
        self.unfinished += difference
        self._queues[queue_id].unfinished += difference

    def add_leased(self, queue_id: bytes) -> None:
        """Count a claim: a permit, and a Start reserved."""
        self.active += 1
        queue = self._queues[queue_id]
        queue.active += 1
        queue.leased_unstarted += 1

    def end_attempt(self, queue_id: bytes, *, started: bool) -> None:
        """Give back the permit of an attempt, and the Start that an unstarted one had reserved."""
        self.active -= 1
        queue = self._queues[queue_id]
        queue.active -= 1
        queue.leased_unstarted -= not started

    def flush(self) -> None:
        """Store what has changed."""
        changed = {queue_id: queue.values for queue_id, queue in self._queues.items() if queue.changed}
        update_usage(self._tx, changed)
        unfinished = self.unfinished - self._application.unfinished
        active = self.active - self._application.active
        if unfinished or active:
            update_application_usage(self._tx, self.application_id, unfinished=unfinished, active=active)


def lock_usage(tx: Tx, application_id: bytes, *reads: Read[Any]) -> tuple[Usage, list[Any]]:
    """Take the application's write lock; return its counters, and what `reads` found under it.

    Locks: the quota row (rank 1).
    """
    application, found = lock_application(tx, application_id, *reads)
    return Usage(tx, application), found


def _stored(row: QueueRow) -> UsageValues:
    return UsageValues(
        row.active, row.leased_unstarted, row.unfinished, row.window_started_at, row.window_count
    )
