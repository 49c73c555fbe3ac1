"""Pools: sessions with the same registration, for which a tick claims once and deals to the emptiest (claiming.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self

from orbit.domain.ids import new_id
from orbit.domain.keys import handler_digest
from orbit.pulse.commands import Claimed, ClaimTasks, Seat
from orbit.pulse.session_commands import OpenSession
from orbit.runtime.hints import queue_hash
from orbit.scheduler.rotation import rotated

if TYPE_CHECKING:
    from orbit.scheduler.session import WorkerSession

# After a claim that found nothing although a probe had seen something: from 5 ms, doubled each time, at most 250 ms.
PAUSE_MIN_SECONDS: Final = 0.005
PAUSE_MAX_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the sessions of a pool have in common; a hashable name of the pool."""

    namespace_id: bytes
    queue_ids: tuple[bytes, ...]
    handlers: tuple[tuple[str, str], ...]
    concurrency_keys: bool

    @classmethod
    def of(cls, namespace_id: bytes, command: OpenSession) -> Self:
        return cls(
            namespace_id=namespace_id,
            queue_ids=tuple(sorted(command.queue_ids)),
            handlers=tuple(sorted((offer.name, offer.version) for offer in command.handlers)),
            concurrency_keys=command.concurrency_keys,
        )


class _Cause(Enum):
    """Why a claim was made: work had been seen, a hint had come, or the tick gave seats back anyway."""

    SIGHT = auto()
    HINT = auto()
    SEATS = auto()


class Pool:
    """The sessions of one registration, and what is known about work for them."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.sessions: dict[bytes, WorkerSession] = {}
        # A probe, or the last claim, has seen work; a hint says that there should be some.
        self.is_wanted = False
        self.is_hinted = False
        self.is_claiming = False
        self.not_before = 0.0
        self._cause = _Cause.SEATS
        self._is_doubtful = False
        self._misses = 0
        self._turn = 0
        digests = [handler_digest(name, version) for name, version in registration.handlers]
        self.queue_hashes = frozenset(map(queue_hash, registration.queue_ids))
        self.pairs = tuple((queue_id, digest) for queue_id in registration.queue_ids for digest in digests)

    def has_room(self) -> bool:
        return any(session.room() for session in self.sessions.values())

    def is_due(self, now: float) -> bool:
        """Tell whether a claim is worth its transaction, even if no tick is on its way."""
        return (self.is_wanted or self.is_hinted) and self.not_before <= now

    def hint(self, now: float) -> bool:
        """Take it that there is something to claim; false where a probe is to look first.

        The claim itself is the probe then, one transaction sooner. A hint that comes while a claim is in flight, which
        may have looked too early, asks for another one; without room it is kept. Once a hint was in vain, probes decide
        until a claim succeeds.
        """
        if self._is_doubtful or self.not_before > now:
            return False
        self.is_hinted = True
        return True

    def seats(self, freed: Mapping[bytes, int]) -> list[Seat]:
        """Return who has room, the emptiest first; `freed` seats are given back by the same tick."""
        seats = [
            Seat(session_id=session_id, free=room)
            for session_id, session in self.sessions.items()
            if (room := session.room(freed.get(session_id, 0))) > 0
        ]
        if len(seats) > 1:
            seats.sort(key=lambda seat: -seat.free)
        return seats

    def claim(self, seats: list[Seat], room: int, lease_ms: int) -> ClaimTasks:
        """Return a claim of at most `room` tasks, never more than there are seats."""
        count = min(room, sum([seat.free for seat in seats]))
        self._cause = _Cause.SIGHT if self.is_wanted else _Cause.HINT if self.is_hinted else _Cause.SEATS
        self.is_claiming, self.is_hinted = True, False
        self._turn += 1
        return ClaimTasks(
            namespace_id=self.registration.namespace_id,
            queue_ids=rotated(self.registration.queue_ids, self._turn),
            handlers=self.registration.handlers,
            concurrency_keys=self.registration.concurrency_keys,
            seats=tuple(seats),
            attempt_ids=tuple([new_id() for _ in range(count)]),
            lease_ms=lease_ms,
        )

    def settle(self, command: ClaimTasks, outcome: object, now: float) -> None:
        """Learn from a claim whether the next one is worth a transaction, and from when on."""
        self.is_claiming = False
        if isinstance(outcome, Claimed) and outcome.assignments:
            # A claim that used up its seats may have left more than it could see. One that found only what it couldn't
            # take (deadlines that passed, keys just taken) doesn't come back at once, whatever it left.
            self.is_wanted = outcome.more or len(outcome.assignments) == len(command.attempt_ids)
            self._is_doubtful = False
            self._misses, self.not_before = 0, 0.0
        elif isinstance(outcome, Claimed) and self._cause is not _Cause.SIGHT:
            self._is_doubtful |= self._cause is _Cause.HINT
        else:
            self.is_wanted = False
            if not (isinstance(outcome, Claimed) and self.is_hinted):
                self.not_before = now + min(PAUSE_MIN_SECONDS * 2**self._misses, PAUSE_MAX_SECONDS)
                self._misses = min(self._misses + 1, 10)

    def abandon(self) -> None:
        """Forget a claim that got no outcome; the next probe looks anew."""
        self.is_claiming = self.is_wanted = self.is_hinted = False
