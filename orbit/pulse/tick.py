"""The dispatch tick: one transaction of one application for all that has gathered (01-architecture, Group commit).

In this order, whatever the order of the list: results and declines, promotions, Starts, claims for what is free after
them. A key or permit that a result releases is claimed again in the same transaction, so a hot key costs two commits a
task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from orbit.domain.errors import OrbitError
from orbit.pulse.claim import claim
from orbit.pulse.commands import (
    ClaimTasks,
    DeclineAttempt,
    FinishAttempt,
    PromoteTasks,
    StartAttempt,
    TickOperation,
    TickOutcome,
)
from orbit.pulse.finish import end_reports
from orbit.pulse.promote import promote
from orbit.pulse.settle import Results, settle
from orbit.pulse.start import Starts, start_attempts
from orbit.pulse.usage import Usage, lock_usage
from orbit.store.sql.attempts import HeldRow, read_held
from orbit.store.sql.fences import FenceRow, read_fences
from orbit.store.sql.queues import read_queues, read_queues_of
from orbit.store.transaction import Tx

Kind = TypeVar("Kind")
_Indexed = list[tuple[int, Kind]]


def tick(
    tx: Tx, application_id: bytes, operations: Sequence[TickOperation]
) -> list[TickOutcome | OrbitError]:
    """Run the operations of one application; answer each, in the list's order.

    Locks: the application (rank 1), then keys, lanes, tasks, attempts, and the result streams last.
    """
    ends = _pick(operations, FinishAttempt) + _pick(operations, DeclineAttempt)
    promotions, starts = _pick(operations, PromoteTasks), _pick(operations, StartAttempt)
    claims = _pick(operations, ClaimTasks)

    named = {command.attempt_id for _, command in ends} | {command.attempt_id for _, command in starts}
    offered = {queue_id for _, command in claims for queue_id in command.queue_ids}
    usage, fences, held = _lock(tx, application_id, _sessions(operations), sorted(named), sorted(offered))
    results = Results()
    outcomes: dict[int, TickOutcome | OrbitError] = {}

    reports, ended = end_reports(tx, fences, held, [command for _, command in ends])
    settle(tx, usage, results, list(reports.ended.values()))
    reports.keep_evidence()
    outcomes.update(zip((index for index, _ in ends), ended, strict=True))

    promoted = promote(tx, application_id, [command for _, command in promotions])
    outcomes.update(zip((index for index, _ in promotions), promoted, strict=True))

    granted = start_attempts(
        Starts(tx, usage, fences, held, reports.ended.keys()), [command for _, command in starts]
    )
    outcomes.update(zip((index for index, _ in starts), granted, strict=True))

    for index, command in claims:
        outcomes[index] = claim(tx, usage, fences, command)

    usage.flush()
    results.flush(tx)
    return [outcomes[index] for index in range(len(operations))]


def _lock(
    tx: Tx,
    application_id: bytes,
    session_ids: Sequence[bytes],
    attempt_ids: Sequence[bytes],
    queue_ids: Sequence[bytes],
) -> tuple[Usage, dict[bytes, FenceRow], dict[bytes, HeldRow]]:
    """Take the application's write lock and read under it, in one round trip, what the operations are judged on."""
    usage, (fences, named, queues) = lock_usage(
        tx,
        application_id,
        read_fences(session_ids),
        read_held(attempt_ids),
        # A pool's claims name the queues of its attempts too, as a rule; what is missing is read on its own.
        read_queues(queue_ids) if queue_ids else read_queues_of(attempt_ids),
    )
    held = {key: row for key, row in named.items() if row.application_id == application_id}
    usage.know(queues)
    usage.load(row.queue_id for row in held.values())
    return usage, fences, held


def _pick(operations: Sequence[TickOperation], kind: type[Kind]) -> _Indexed[Kind]:
    return [(index, operation) for index, operation in enumerate(operations) if isinstance(operation, kind)]


def _sessions(operations: Sequence[TickOperation]) -> list[bytes]:
    sessions: set[bytes] = set()
    for operation in operations:
        if isinstance(operation, ClaimTasks):
            sessions.update(seat.session_id for seat in operation.seats)
        elif not isinstance(operation, PromoteTasks):
            sessions.add(operation.session_id)
    return sorted(sessions)
