"""Claim: lease ready tasks to a pool's sessions, with queue permits, keys and fencing tokens (docs/claiming.md)."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from orbit.domain.durations import MILLISECOND, earlier
from orbit.domain.errors import OrbitError
from orbit.domain.keys import NO_KEY, handler_digest, lane_id
from orbit.domain.limits import UINT64_MAX
from orbit.domain.permissions import WORKERS_CONSUME
from orbit.domain.states import TaskState
from orbit.pulse.assignments import assignment_of, resent
from orbit.pulse.commands import Assignment, Claimed, ClaimTasks, Seat
from orbit.pulse.usage import Usage
from orbit.store.sql.attempts import NewAttempt, insert_attempts, select_leases
from orbit.store.sql.claims import LaneSource, select_candidates, select_claimable_pairs
from orbit.store.sql.fences import FenceRow
from orbit.store.sql.keys import KeyRow, select_keys, take_keys
from orbit.store.sql.lanes import recompute_heads, set_occupied
from orbit.store.sql.tasks import ClaimRow, update_leased
from orbit.store.transaction import Tx

# Beyond this many (queue, handler) pairs a first read finds those that have anything to claim.
_FEW_PAIRS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """A task that is being claimed, for whom, and under which token."""

    task: ClaimRow
    attempt_id: bytes
    fence: FenceRow
    token: int | None
    expires_at: datetime
    cap_at: datetime | None


def claim(tx: Tx, usage: Usage, fences: dict[bytes, FenceRow], command: ClaimTasks) -> Claimed | OrbitError:
    """Claim for one pool what its queues, keys, the application and its seats have room for.

    Locks: tasks (rank 7), attempts (8); key and lane rows under the application's write lock.
    """
    if tx.resolving:
        # The same claim may have committed before its answer was lost: its candidate ids name the attempts.
        already = resent(tx, select_leases(tx, command.attempt_ids).values())
        if already:
            return Claimed(assignments=tuple(already))
    seats = [seat for seat in command.seats if _may_consume(fences.get(seat.session_id))]
    wanted = min(sum(seat.free for seat in seats), len(command.attempt_ids), max(0, usage.active_room))
    sources = _sources(tx, usage, command, wanted) if wanted > 0 else []
    if not sources:
        return Claimed(assignments=())
    candidates = select_candidates(tx, sources, keyed=command.concurrency_keys)
    keys = _keys(tx, command.namespace_id, candidates)
    chosen = _choose(tx, usage, command.queue_ids, _lines(tx, candidates), keys, wanted)
    leases = _lease(tx, fences, command, chosen, keys, seats)
    _store(tx, usage, leases, keys)
    now = tx.now
    return Claimed(
        assignments=tuple(_assignment(lease, now) for lease in leases), more=len(candidates) > len(leases)
    )


def _may_consume(fence: FenceRow | None) -> bool:
    return fence is not None and bool(fence.valid) and WORKERS_CONSUME in fence.actions.split()


def _sources(tx: Tx, usage: Usage, command: ClaimTasks, wanted: int) -> list[LaneSource]:
    """Name the lanes to look at: those of queues with room, and where there are many, those with ready tasks."""
    digests = [handler_digest(name, version) for name, version in command.handlers]
    rooms = {
        queue_id: min(wanted, queue.claim_room(tx.now))
        for queue_id in command.queue_ids
        if (queue := usage.find(queue_id)) is not None
    }
    pairs = [(queue_id, digest) for queue_id, room in rooms.items() if room > 0 for digest in digests]
    if len(pairs) > _FEW_PAIRS:
        claimable = select_claimable_pairs(tx, sorted({pair[0] for pair in pairs}), digests)
        pairs = [pair for pair in pairs if pair in claimable]
    return [
        LaneSource(queue_id, digest, lane_id(queue_id, digest, NO_KEY), rooms[queue_id])
        for queue_id, digest in pairs
    ]


def _keys(tx: Tx, namespace_id: bytes, tasks: Iterable[ClaimRow]) -> dict[bytes, KeyRow]:
    """Read the key rows of keyed candidates; a key never taken starts without holder and token."""
    keyed = {task.key_digest: task.concurrency_key for task in tasks if task.concurrency_key is not None}
    found = select_keys(tx, namespace_id, sorted(keyed))
    return {
        digest: found.get(digest) or KeyRow(namespace_id, digest, key, None, 0)
        for digest, key in keyed.items()
    }


def _lines(tx: Tx, candidates: Sequence[ClaimRow]) -> dict[bytes, deque[ClaimRow]]:
    """Line the candidates up by queue, in dispatch order, without those that the lock's check refuses."""
    lines: dict[bytes, deque[ClaimRow]] = defaultdict(deque)
    for task in candidates:
        if _claimable(task, tx.now):
            lines[task.queue_id].append(task)
    return lines


def _choose(
    tx: Tx,
    usage: Usage,
    queue_ids: Sequence[bytes],
    lines: dict[bytes, deque[ClaimRow]],
    keys: dict[bytes, KeyRow],
    wanted: int,
) -> list[ClaimRow]:
    """Pick tasks queue by queue in equal shares, then the remainder in a second pass; a key once."""
    order = [queue_id for queue_id in queue_ids if lines.get(queue_id)]
    rooms = {queue_id: usage.queue(queue_id).claim_room(tx.now) for queue_id in order}
    chosen: list[ClaimRow] = []
    taken: set[bytes] = set()
    for share in (-(-wanted // max(1, len(order))), wanted):
        for queue_id in order:
            room = min(share, rooms[queue_id], wanted - len(chosen))
            while room > 0 and lines[queue_id]:
                task = lines[queue_id].popleft()
                key = keys.get(task.key_digest)
                if key is not None and (task.key_digest in taken or not _key_free(key)):
                    continue
                chosen.append(task)
                taken.add(task.key_digest if key is not None else task.task_id)
                room -= 1
                rooms[queue_id] -= 1
    return chosen


def _claimable(task: ClaimRow, now: datetime) -> bool:
    """Check under the lock what the candidate's index said, and the deadlines that no index knows."""
    return (
        task.state == TaskState.WAITING
        and task.ready == 1
        and task.available_at <= now
        and (task.unstarted_deadline_at is None or task.unstarted_deadline_at > now)
    )


def _key_free(key: KeyRow) -> bool:
    """A claim needs room for its own token and for the raise at release: numbers never wrap."""
    return key.holder_attempt_id is None and key.last_token <= UINT64_MAX - 2


def _lease(
    tx: Tx,
    fences: dict[bytes, FenceRow],
    command: ClaimTasks,
    chosen: Sequence[ClaimRow],
    keys: dict[bytes, KeyRow],
    seats: Sequence[Seat],
) -> list[_Lease]:
    """Deal tasks to the sessions with most free slots."""
    heap = [(-seat.free, index) for index, seat in enumerate(seats) if seat.free > 0]
    heapq.heapify(heap)
    leases = []
    for attempt_id, task in zip(command.attempt_ids, chosen, strict=False):
        free, index = heap[0]
        if free == -1:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (free + 1, index))
        key = keys.get(task.key_digest)
        cap_at = task.unstarted_deadline_at
        leases.append(
            _Lease(
                task=task,
                attempt_id=attempt_id,
                fence=fences[seats[index].session_id],
                token=None if key is None else key.last_token + 1,
                expires_at=earlier(tx.now + command.lease_ms * MILLISECOND, cap_at),
                cap_at=cap_at,
            )
        )
    return leases


def _store(tx: Tx, usage: Usage, leases: Sequence[_Lease], keys: dict[bytes, KeyRow]) -> None:
    if not leases:
        return
    keyed = [lease for lease in leases if lease.token is not None]
    if keyed:
        take_keys(tx, [_taken(keys[lease.task.key_digest], lease) for lease in keyed])
        set_occupied(
            tx, keyed[0].task.namespace_id, [lease.task.key_digest for lease in keyed], occupied=True
        )
    update_leased(tx, [lease.task.task_id for lease in leases])
    insert_attempts(tx, [_row(lease, tx.now) for lease in leases])
    recompute_heads(tx, [lease.task.lane_id for lease in leases])
    for lease in leases:
        usage.add_leased(lease.task.queue_id)


def _taken(key: KeyRow, lease: _Lease) -> KeyRow:
    assert lease.token is not None
    return key._replace(holder_attempt_id=lease.attempt_id, last_token=lease.token)


def _row(lease: _Lease, now: datetime) -> NewAttempt:
    task = lease.task
    return NewAttempt(
        task_id=task.task_id,
        epoch=task.epoch + 1,
        attempt_id=lease.attempt_id,
        application_id=task.application_id,
        namespace_id=task.namespace_id,
        queue_id=task.queue_id,
        key_digest=None if lease.token is None else task.key_digest,
        concurrency_token=lease.token,
        state=TaskState.LEASED,
        worker_ref=lease.fence.worker_ref,
        session_id=lease.fence.session_id,
        leased_at=now,
        lease_expires_at=lease.expires_at,
        lease_cap_at=lease.cap_at,
    )


def _assignment(lease: _Lease, now: datetime) -> Assignment:
    return assignment_of(
        lease.task,
        session_id=lease.fence.session_id,
        attempt_id=lease.attempt_id,
        epoch=lease.task.epoch + 1,
        token=lease.token,
        expires_at=lease.expires_at,
        now=now,
    )
