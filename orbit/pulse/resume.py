"""Resume: after a reconnect a worker names what it holds; the same attempts and tokens go on in the new session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orbit.domain.durations import MILLISECOND, earlier
from orbit.domain.errors import OrbitError, PermissionDenied, StaleAttempt
from orbit.domain.states import LIVE, AttemptState
from orbit.pulse.assignments import resent
from orbit.pulse.renew import lease_state
from orbit.pulse.session_commands import LeaseState, Resumed, ResumeSession
from orbit.store.sql.applications import lock_application
from orbit.store.sql.attempts import (
    AttemptLease,
    LeaseRow,
    lock_leases,
    select_live_of_workers,
    update_leases,
)
from orbit.store.sql.fences import FenceRow, select_fences
from orbit.store.transaction import Tx


def resume_sessions(
    tx: Tx, application_id: bytes, commands: Sequence[ResumeSession]
) -> list[Resumed | OrbitError]:
    """Move live attempts to their workers' new sessions, and find LEASED ones that were never delivered.

    Locks: the application (rank 1), attempts (8, sorted).
    """
    lock_application(tx, application_id)
    fences = select_fences(tx, sorted({command.session_id for command in commands}))
    live, _ = lock_leases(tx, select_live_of_workers(tx, [fence.worker_ref for fence in fences.values()]))
    return [_resume(tx, fences.get(command.session_id), command, live) for command in commands]


def _resume(
    tx: Tx, fence: FenceRow | None, command: ResumeSession, live: dict[bytes, LeaseRow]
) -> Resumed | OrbitError:
    if fence is None:
        return StaleAttempt("the session has been superseded")
    if not fence.valid:
        return PermissionDenied("the session's credential is no longer valid")
    rows = {attempt_id: row for attempt_id, row in live.items() if row.worker_ref == fence.worker_ref}
    listed = {ref.attempt_id: ref.epoch for ref in command.attempts}
    leases: dict[bytes, AttemptLease] = {}
    states = []
    for attempt_id, epoch in listed.items():
        row = rows.get(attempt_id)
        if row is None or row.epoch != epoch or row.state not in LIVE:
            states.append(LeaseState(attempt_id=attempt_id, epoch=epoch, owned=False))
            continue
        expires_at = _extend(row, command, leases, tx.now)
        states.append(lease_state(row, expires_at, tx.now))
    undelivered = [
        row for row in rows.values() if row.attempt_id not in listed and row.state == AttemptState.LEASED
    ]
    for row in undelivered:
        _extend(row, command, leases, tx.now)
    update_leases(tx, leases)
    return Resumed(
        attempts=tuple(states),
        resend=tuple(resent(tx, undelivered, session_id=command.session_id, leases=leases)),
    )


def _extend(
    row: LeaseRow, command: ResumeSession, leases: dict[bytes, AttemptLease], now: datetime
) -> datetime:
    expires_at = earlier(now + command.lease_ms * MILLISECOND, row.lease_cap_at)
    leases[row.attempt_id] = AttemptLease(expires_at, command.session_id)
    return expires_at
