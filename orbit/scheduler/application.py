"""What waits to be done for one application, and how it is packed into its next tick. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orbit.domain.limits import GROUP_BODIES_MAX_BYTES, GROUP_OTHERS_MAX, PROMOTE_MAX
from orbit.domain.states import DeclineReason
from orbit.pulse.commands import Assignment, Claimed, ClaimTasks, DeclineAttempt, PromoteTasks, TickOperation
from orbit.scheduler.pool import Pool, Registration
from orbit.scheduler.rotation import rotated, shares
from orbit.scheduler.session import WorkerSession

# Each pool costs a claim its own reads; further ones lead the next tick.
POOLS_MAX: Final = 8
# What a result takes beside its output.
RESULT_BYTES: Final = 256


class Waiting(NamedTuple):
    """A worker's command in line; `session` is None where nobody waits for an answer."""

    session: WorkerSession | None
    reply_to: str
    command: Any
    size: int = 0


@dataclass(slots=True)
class Tick:
    """The operations of one transaction; `origins` says, position by position, what each came from.

    `releases` is true when results or declines may give keys and permits back.
    """

    operations: list[TickOperation] = field(default_factory=list)
    origins: list[Waiting | Pool | None] = field(default_factory=list)
    releases: bool = False

    def add(self, operation: TickOperation, origin: Waiting | Pool | None) -> None:
        self.operations.append(operation)
        self.origins.append(origin)


class Application:
    """One application's pending operations and pools. At most one of its ticks is in flight."""

    def __init__(self, application_id: bytes, *, lease_ms: int, wake: Callable[[Application], None]) -> None:
        self.application_id = application_id
        self.pools: dict[Registration, Pool] = {}
        self.in_flight = False
        self.is_stopping = False
        self._lease_ms = lease_ms
        self._wake = wake
        self._resumes: deque[Waiting] = deque()
        self._finishes: deque[Waiting] = deque()
        self._declines: deque[Waiting] = deque()
        self._starts: deque[Waiting] = deque()
        self._due: dict[bytes, None] = {}
        self._promoting: frozenset[bytes] = frozenset()
        self._turn = 0

    # --- what comes in

    def resume(self, waiting: Waiting) -> None:
        self._resumes.append(waiting)

    def finish(self, waiting: Waiting) -> None:
        self._finishes.append(waiting)

    def decline(self, waiting: Waiting) -> None:
        self._declines.append(waiting)

    def start(self, waiting: Waiting) -> None:
        self._starts.append(waiting)

    def promote(self, task_ids: Iterable[bytes]) -> None:
        """Let due tasks become claimable in the next tick; the same one twice counts once."""
        self._due.update(dict.fromkeys(task_id for task_id in task_ids if task_id not in self._promoting))

    def hand_back(self, assignment: Assignment) -> None:
        """Return a claimed attempt that can't reach its session, instead of waiting for its lease to end."""
        command = DeclineAttempt(
            session_id=assignment.session_id,
            command_id=f"undelivered-{assignment.attempt_id.hex()}",
            attempt_id=assignment.attempt_id,
            epoch=assignment.epoch,
            reason=DeclineReason.DRAINING,
        )
        self._declines.append(Waiting(None, "", command))

    def join(self, session: WorkerSession) -> None:
        """Add an opened session to the pool of its registration."""
        assert session.registration is not None
        pool = self.pools.get(session.registration)
        if pool is None:
            pool = self.pools[session.registration] = Pool(session.registration)
        pool.sessions[session.session_id] = session

    def leave(self, session: WorkerSession) -> None:
        pool = self.pools.get(session.registration) if session.registration is not None else None
        if pool is not None:
            pool.sessions.pop(session.session_id, None)
            if not pool.sessions:
                del self.pools[pool.registration]

    # --- what goes out

    def has_work(self, now: float) -> bool:
        """Tell whether a tick is worth its transaction."""
        if self._resumes or self._finishes or self._declines or self._starts or self._due:
            return True
        return not self.is_stopping and any(
            pool.is_due(now) and pool.has_room() for pool in self.pools.values()
        )

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing of a worker's is in line or in flight."""
        return not (
            self.in_flight or self._resumes or self._finishes or self._declines or self._starts or self._due
        )

    @property
    def is_empty(self) -> bool:
        return self.is_idle and not self.pools

    def wake(self, now: float) -> None:
        """Ask for a turn if there is something to do and no tick in flight."""
        if not self.in_flight and self.has_work(now):
            self._wake(self)

    def take_resumes(self) -> list[Waiting]:
        """Return the sessions to resume; they go before the tick, whose commands may rest on them."""
        return _take(self._resumes, GROUP_OTHERS_MAX)

    def take(self, now: float) -> Tick:
        """Pack the next tick: results and declines, promotions, Starts, then claims for what is free after them."""
        tick = Tick()
        freed: dict[bytes, int] = {}
        for waiting in [*self._take_finishes(), *_take(self._declines, GROUP_OTHERS_MAX)]:
            tick.add(waiting.command, waiting)
            tick.releases = True
            session = waiting.session
            if session is not None and session.frees(waiting.command):
                freed[session.session_id] = freed.get(session.session_id, 0) + 1
        if self._due:
            due = list(self._due)
            tick.add(PromoteTasks(task_ids=tuple(due[:PROMOTE_MAX])), None)
            self._promoting = frozenset(due[:PROMOTE_MAX])
            self._due = dict.fromkeys(due[PROMOTE_MAX:])
        for waiting in _take(self._starts, GROUP_OTHERS_MAX):
            tick.add(waiting.command, waiting)
        if not self.is_stopping:
            self._add_claims(tick, freed, now)
        return tick

    def settle(
        self, tick: Tick, outcomes: Sequence[Any], now: float
    ) -> list[tuple[WorkerSession, Assignment]]:
        """Answer every command of a tick; return what was claimed for sessions that can take it."""
        self._promoting = frozenset()
        assigned: list[tuple[WorkerSession, Assignment]] = []
        for operation, origin, outcome in zip(tick.operations, tick.origins, outcomes, strict=True):
            if type(origin) is Waiting:
                if origin.session is not None:
                    origin.session.answer(origin.reply_to, origin.command, outcome, now, origin.size)
            elif isinstance(origin, Pool) and isinstance(operation, ClaimTasks):
                origin.settle(operation, outcome, now)
                if isinstance(outcome, Claimed):
                    assigned += self._deal(origin, outcome.assignments, now)
        return assigned

    def _deal(
        self, pool: Pool, assignments: Iterable[Assignment], now: float
    ) -> list[tuple[WorkerSession, Assignment]]:
        dealt: list[tuple[WorkerSession, Assignment]] = []
        for assignment in assignments:
            session = pool.sessions.get(assignment.session_id)
            if session is None or session.is_draining or self.is_stopping:
                self.hand_back(assignment)
            else:
                session.assign(assignment, now)
                dealt.append((session, assignment))
        return dealt

    def _take_finishes(self) -> list[Waiting]:
        taken: list[Waiting] = []
        room = GROUP_BODIES_MAX_BYTES
        line = self._finishes
        while line and len(taken) < GROUP_OTHERS_MAX and (not taken or line[0].size <= room):
            room -= line[0].size
            taken.append(line.popleft())
        return taken

    def _add_claims(self, tick: Tick, freed: dict[bytes, int], now: float) -> None:
        """Claim for pools that are known to have work, and for those that this tick gives seats back to."""
        found = []
        for pool in rotated(list(self.pools.values()), self._turn):
            if pool.is_due(now) or not freed.keys().isdisjoint(pool.sessions):
                seats = pool.seats(freed)
                if seats:
                    found.append((pool, seats))
                    if len(found) == POOLS_MAX:
                        break
        self._turn += 1
        if found:
            for (pool, seats), room in zip(found, shares(GROUP_OTHERS_MAX, len(found)), strict=True):
                tick.add(pool.claim(seats, room, self._lease_ms), pool)


def _take(line: deque[Waiting], limit: int) -> list[Waiting]:
    return [line.popleft() for _ in range(min(limit, len(line)))]
