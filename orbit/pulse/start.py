"""Start: the moment from which handler code may run, granted once an attempt and counted in the queue's rate window."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbit.domain.durations import MILLISECOND, earlier, ms_left
from orbit.domain.errors import (
    CancelRequested,
    DeadlineExceeded,
    OrbitError,
    PermissionDenied,
    QueuePaused,
    RateLimited,
    StaleAttempt,
    StateConflict,
)
from orbit.domain.limits import ATTEMPT_DEADLINE_GRACE_MS, REFUSED_RETRY_AFTER_MS
from orbit.domain.states import AttemptState
from orbit.pulse.commands import StartAttempt, Started
from orbit.pulse.endings import DEADLINE_EXCEEDED, START_DEADLINE_EXCEEDED, deadline_passed
from orbit.pulse.usage import Usage
from orbit.store.sql.attempts import AttemptStart, HeldRow, update_attempts_started
from orbit.store.sql.fences import FenceRow
from orbit.store.sql.tasks import clear_unstarted_deadlines
from orbit.store.transaction import Tx

# A lease with this part of its length left needs no extension: renewals come after a third of it.
_FRESH = 5 / 6
_GRACE = ATTEMPT_DEADLINE_GRACE_MS * MILLISECOND


@dataclass(slots=True)
class Starts:
    """Judges Starts in order against the counters as they stand, and stores the grants together."""

    tx: Tx
    usage: Usage
    fences: dict[bytes, FenceRow]
    held: dict[bytes, HeldRow]
    # Attempts that this very transaction has ended: their rows still show the lease that they had.
    ended: Collection[bytes]
    granted: dict[bytes, AttemptStart] = field(default_factory=dict)

    def start(self, command: StartAttempt) -> Started | OrbitError:
        fence, held = self.fences.get(command.session_id), self.held.get(command.attempt_id)
        if (
            fence is None
            or held is None
            or held.epoch != command.epoch
            or held.session_id != command.session_id
        ):
            return StaleAttempt("the attempt isn't this session's")
        if not fence.valid:
            return PermissionDenied("the session's credential is no longer valid")
        grant = self.granted.get(held.attempt_id)
        if grant is not None or held.attempt_state == AttemptState.RUNNING:
            return self._again(held, grant, command)
        refusal = self._refusal(held)
        return self._grant(held, command) if refusal is None else refusal

    def flush(self) -> None:
        """Store the grants. Locks: tasks (rank 7), attempts (8)."""
        update_attempts_started(self.tx, self.granted)
        bounded = [
            held.task_id for held in map(self.held.__getitem__, self.granted) if held.unstarted_deadline_at
        ]
        if bounded:
            clear_unstarted_deadlines(self.tx, bounded)

    def _again(
        self, held: HeldRow, grant: AttemptStart | None, command: StartAttempt
    ) -> Started | OrbitError:
        """Answer a repeat by the grant of this transaction or of an earlier one."""
        command_id = grant.start_command_id if grant else held.start_command_id
        expires_at = grant.lease_expires_at if grant else held.lease_expires_at
        if held.attempt_id in self.ended or expires_at is None:
            return StaleAttempt("the attempt has ended")
        if command_id != command.command_id.encode():
            return StateConflict("the attempt was started under another message id")
        return _started(expires_at, grant.deadline_at if grant else held.attempt_deadline_at, self.tx.now)

    def _refusal(self, held: HeldRow) -> OrbitError | None:
        now = self.tx.now
        if held.attempt_state == AttemptState.CANCELLED:
            return CancelRequested("the task was cancelled")
        if held.attempt_error_code in (DEADLINE_EXCEEDED, START_DEADLINE_EXCEEDED) or (
            held.attempt_state == AttemptState.LEASED and deadline_passed(held, now)
        ):
            return DeadlineExceeded("the task's deadline passed before the Start")
        is_leased = held.attempt_state == AttemptState.LEASED and held.attempt_id not in self.ended
        if not is_leased or held.lease_expires_at is None or held.lease_expires_at <= now:
            return StaleAttempt("the attempt's lease has ended")
        queue = self.usage.queue(held.queue_id)
        if queue.row.paused:
            return QueuePaused("the queue is paused", retry_after_ms=REFUSED_RETRY_AFTER_MS)
        if queue.starts_left(now) <= 0:
            return RateLimited("the queue's rate window is full", retry_after_ms=queue.window_left_ms(now))
        return None

    def _grant(self, held: HeldRow, command: StartAttempt) -> Started:
        now = self.tx.now
        deadline_at = _attempt_deadline(held, now)
        cap = None if deadline_at is None else deadline_at + _GRACE
        expires_at = _lease_end(held, command, cap, now)
        self.usage.queue(held.queue_id).count_start(now)
        self.granted[held.attempt_id] = AttemptStart(
            started_at=now,
            lease_expires_at=expires_at,
            lease_cap_at=cap,
            start_command_id=command.command_id.encode(),
            deadline_at=deadline_at,
        )
        return _started(expires_at, deadline_at, now)


def start_attempts(starts: Starts, commands: Sequence[StartAttempt]) -> list[Started | OrbitError]:
    """Judge Starts in their order and store the grants."""
    outcomes = [starts.start(command) for command in commands]
    starts.flush()
    return outcomes


def _lease_end(held: HeldRow, command: StartAttempt, cap: datetime | None, now: datetime) -> datetime:
    """Return the lease's end from the Start on.

    The claim's own lease goes on while it is fresh: an index entry that needn't move. Otherwise a full one begins.
    """
    assert held.lease_expires_at is not None
    fresh = held.lease_expires_at >= now + command.lease_ms * _FRESH * MILLISECOND
    return earlier(held.lease_expires_at if fresh else now + command.lease_ms * MILLISECOND, cap)


def _attempt_deadline(held: HeldRow, now: datetime) -> datetime | None:
    """Return min(now + attempt timeout, total deadline), None without either."""
    if held.attempt_timeout_ms is None:
        return held.deadline_at
    return earlier(now + held.attempt_timeout_ms * MILLISECOND, held.deadline_at)


def _started(expires_at: datetime, deadline_at: datetime | None, now: datetime) -> Started:
    deadline_ms = None if deadline_at is None else ms_left(deadline_at, now)
    return Started(lease_ms=ms_left(expires_at, now), deadline_ms=deadline_ms)
