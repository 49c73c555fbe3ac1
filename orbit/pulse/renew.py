"""Renewal: the one change of an attempt that needs no application lock, so that a busy application never delays it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orbit.domain.durations import MILLISECOND, earlier, ms_left
from orbit.domain.errors import OrbitError, PermissionDenied
from orbit.domain.states import LIVE
from orbit.pulse.session_commands import AttemptRef, LeaseState, Renewed, RenewLeases
from orbit.store.sql.attempts import AttemptLease, LeaseRow, lock_leases, update_leases
from orbit.store.sql.fences import read_fences
from orbit.store.transaction import CLOCK, Tx


def renew_leases(tx: Tx, commands: Sequence[RenewLeases]) -> list[Renewed | OrbitError]:
    """Extend what the sessions hold; an attempt is judged by its state, epoch and session, not by its lease's end.

    Locks: attempt rows (rank 8, sorted) and nothing else.
    """
    sessions = sorted({command.session_id for command in commands})
    wanted = sorted({ref.attempt_id for command in commands for ref in command.attempts})
    rows, (fences, now) = lock_leases(tx, wanted, read_fences(sessions), CLOCK)
    tx.read_clock(now)
    leases: dict[bytes, AttemptLease] = {}
    outcomes: list[Renewed | OrbitError] = []
    for command in commands:
        fence = fences.get(command.session_id)
        if fence is not None and not fence.valid:
            outcomes.append(PermissionDenied("the session's credential is no longer valid"))
            continue
        current = rows if fence is not None else {}
        outcomes.append(
            Renewed(attempts=tuple(_renew(tx.now, command, ref, current, leases) for ref in command.attempts))
        )
    update_leases(tx, leases)
    return outcomes


def _renew(
    now: datetime,
    command: RenewLeases,
    ref: AttemptRef,
    rows: dict[bytes, LeaseRow],
    leases: dict[bytes, AttemptLease],
) -> LeaseState:
    row = rows.get(ref.attempt_id)
    if row is None or not is_held(row, ref, command.session_id):
        return LeaseState(attempt_id=ref.attempt_id, epoch=ref.epoch, owned=False)
    expires_at = earlier(now + command.lease_ms * MILLISECOND, row.lease_cap_at)
    leases[row.attempt_id] = AttemptLease(expires_at, command.session_id)
    return lease_state(row, expires_at, now)


def is_held(row: LeaseRow, ref: AttemptRef, session_id: bytes) -> bool:
    return row.state in LIVE and row.epoch == ref.epoch and row.session_id == session_id


def lease_state(row: LeaseRow, expires_at: datetime, now: datetime) -> LeaseState:
    return LeaseState(
        attempt_id=row.attempt_id,
        epoch=row.epoch,
        owned=True,
        state=row.state,
        lease_ms=ms_left(expires_at, now),
        cancel_requested=row.cancel_requested_at is not None,
    )
