"""What a worker session holds: its registration, its attempts, and the actions it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orbit_sdk._execution import Lease
from orbit_sdk._messages import Assign, AttemptRef, Decline, HandlerDeclaration, Result, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Who the worker is and what it offers: fixed for the life of `worker_id` (32 hex digits)."""

    worker_id: str
    sdk: str
    queues: tuple[str, ...]
    handlers: tuple[HandlerDeclaration, ...]
    capacity: int
    concurrency_keys: bool
    name: str | None = None

    def effects(self) -> dict[tuple[str, str], str | None]:
        """The effect class of every handler by name and version."""
        return {(handler.name, handler.version): handler.effect for handler in self.handlers}


class Phase(Enum):
    """Where a held attempt stands on this side."""

    OFFERED = "OFFERED"  # leased; a start is waiting, sent, or to be repeated
    RUNNING = "RUNNING"  # the handler runs
    REPORTING = "REPORTING"  # its result is not yet acknowledged
    DECLINING = "DECLINING"  # given back, not yet acknowledged


class Held:
    """One attempt, from its assignment to the acknowledgement of its end."""

    __slots__ = (
        "assign",
        "command",
        "give_up_at",
        "in_doubt",
        "is_stopped",
        "lease",
        "phase",
        "ref",
        "sent_round",
    )

    def __init__(self, assign: Assign, *, now: float) -> None:
        lease_ends_at = now + assign.lease_ms / 1000
        self.assign = assign
        self.ref = AttemptRef(assign.attempt_id, assign.epoch)
        self.phase = Phase.OFFERED
        self.lease = Lease(lease_ends_at)
        # Renewals would let an unstarted attempt block its place for ever; one lease is long enough to wait.
        self.give_up_at = lease_ends_at
        # The one command that is unanswered or waits to be sent; its id survives reconnects.
        self.command: Start | Result | Decline | None = None
        # Whether the command may have reached a dispatcher without an answer so far.
        self.in_doubt = False
        # The renewal round in which the command was last handed over.
        self.sent_round = 0
        # Whether the handler was told to end because the lease lapsed.
        self.is_stopped = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is open for assignments."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run the handler of this attempt; `deadline` is on the clock of the core."""

    held: Held
    deadline: float | None


class StopReason(Enum):
    """Why a handler has to end."""

    LOST = "LOST"
    LEASE_LAPSED = "LEASE_LAPSED"


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel the handler of this attempt; where it is LOST nothing is reported."""

    attempt_id: str
    reason: StopReason


@dataclass(frozen=True, slots=True)
class AskCancel:
    """Tell the handler that somebody wants its end."""

    attempt_id: str


@dataclass(frozen=True, slots=True)
class DrainedByServer:
    """Nothing of this session is in flight, and nothing will be assigned."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Give this connection up and try again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that people should find in the log."""

    event: str
    fields: Mapping[str, object]


Action = Ready | Run | Stop | AskCancel | DrainedByServer | Reconnect | Note
