"""One worker's session as a state machine without I/O: its registration, what it holds, what it may still be given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from orbit.domain.errors import CancelRequested, DeadlineExceeded, OrbitError, StaleAttempt
from orbit.domain.states import DeclineReason
from orbit.kernel.caller import Caller, Token
from orbit.pulse.commands import Assignment, DeclineAttempt, FinishAttempt, StartAttempt, Started
from orbit.pulse.session_commands import LeaseState, OpenSession, Renewed, Resumed, SessionOpened
from orbit.scheduler import messages, replies
from orbit.scheduler.outbox import Outbox
from orbit.scheduler.pool import Registration

# Commands without a reply that one session may have in flight, beside four for each seat: beyond it the peer floods.
SPARE_COMMANDS = 256

WorkerCommand = FinishAttempt | DeclineAttempt | StartAttempt
_LOST = (StaleAttempt, CancelRequested, DeadlineExceeded)


class ProtocolViolation(Exception):
    """The peer broke the protocol; its connection ends with 1008 and this text."""


class Phase(Enum):
    """Where a connection stands. Nothing is assigned outside of OPEN."""

    NEW = auto()
    OPENING = auto()
    RESUMING = auto()
    OPEN = auto()
    ENDED = auto()


@dataclass(slots=True)
class HeldAttempt:
    """An attempt that takes a seat; `expires_at` is on the loop's clock and only guards against a forgotten seat."""

    epoch: int
    expires_at: float
    is_started: bool = False
    cancel_told: bool = False


class WorkerSession:
    """One connection of a worker, from its upgrade to its end."""

    def __init__(self, *, caller: Caller, token: Token, outbox: Outbox) -> None:
        self.caller = caller
        self.token = token
        self.outbox = outbox
        self.phase = Phase.NEW
        self.session_id = b""
        self.worker_ref = b""
        self.generation = 0
        self.capacity = 0
        self.registration: Registration | None = None
        self.held: dict[bytes, HeldAttempt] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.undelivered = 0
        self.is_draining = False
        self._drain_reply: str | None = None

    @property
    def application_id(self) -> bytes:
        return self.caller.application_id

    @property
    def is_live(self) -> bool:
        return self.phase in (Phase.OPEN, Phase.RESUMING)

    def room(self, freed: int = 0) -> int:
        """Return how many more attempts the session may be given, once `freed` seats are given back."""
        if self.phase is not Phase.OPEN or self.is_draining:
            return 0
        if self.outbox.ending is not None or self.outbox.is_full:
            return 0
        return max(0, self.capacity - len(self.held) + freed)

    # --- registration

    def greet(self, command: OpenSession) -> None:
        """Take the one hello that a connection may send."""
        if self.phase is not Phase.NEW:
            raise ProtocolViolation("hello was sent before")
        self.phase = Phase.OPENING
        self.capacity = command.capacity
        self.registration = Registration.of(self.caller.namespace_id, command)

    def refuse(self, reply_to: str, error: OrbitError) -> None:
        """Let the worker say hello again, with other values or later."""
        if self.phase is Phase.OPENING:
            self.phase = Phase.NEW
            self.outbox.put(replies.error(reply_to, error))

    def open(self, reply_to: str, opened: SessionOpened, *, lease_ms: int, renew_ms: int) -> None:
        """Become the worker's session; after generation 1 nothing is assigned before `resume`."""
        self.session_id = opened.session_id
        self.worker_ref = opened.worker_ref
        self.generation = opened.generation
        self.phase = Phase.OPEN if opened.generation == 1 else Phase.RESUMING
        self.outbox.put(
            messages.Welcome(
                reply_to=reply_to,
                session_id=opened.session_id.hex(),
                generation=opened.generation,
                lease_ms=lease_ms,
                renew_ms=renew_ms,
                limits=messages.LIMITS,
            )
        )

    def resumed(self, reply_to: str, outcome: Resumed | OrbitError, now: float) -> None:
        """Reply to a resume and hold what the worker still owns."""
        self.in_flight -= 1
        if isinstance(outcome, OrbitError):
            self.outbox.put(replies.error(reply_to, outcome))
            return
        for state in outcome.attempts:
            if state.owned:
                self._hold(state, now)
            else:
                self.held.pop(state.attempt_id, None)
        self.outbox.put(replies.resumed(reply_to, outcome), len(outcome.attempts) * replies.STATE_BYTES)
        if self.phase is Phase.RESUMING:
            self.phase = Phase.OPEN
        self._drained()

    # --- commands in flight

    def require_live(self) -> None:
        if not self.is_live:
            raise ProtocolViolation("hello must be welcomed first")

    def expect(self, size: int = 0) -> None:
        """Count a command that will be answered; a peer that sends far more than it can hold ends (1013)."""
        self.in_flight += 1
        self.in_flight_bytes += size
        if self.in_flight > 4 * self.capacity + SPARE_COMMANDS:
            self.outbox.end(1013, "too many unanswered commands")

    def answer(
        self, reply_to: str, command: WorkerCommand, outcome: object, now: float, size: int = 0
    ) -> None:
        """Reply to a command and give back its seat where the attempt has ended."""
        self.in_flight -= 1
        self.in_flight_bytes -= size
        if isinstance(outcome, Started):
            held = self.held.get(command.attempt_id)
            if held is not None:
                held.is_started = True
                held.expires_at = now + outcome.lease_ms / 1_000
        elif not isinstance(outcome, OrbitError) or isinstance(outcome, _LOST):
            self.held.pop(command.attempt_id, None)
        self.outbox.put(replies.answer(reply_to, command, outcome))
        self._drained()

    def renewed(self, reply_to: str, outcome: Renewed | OrbitError, now: float) -> None:
        """Reply to a renewal. Only known attempts are touched: one that has just ended must not take a seat again."""
        self.in_flight -= 1
        if isinstance(outcome, OrbitError):
            self.outbox.put(replies.error(reply_to, outcome))
        else:
            for state in outcome.attempts:
                if not state.owned:
                    self.held.pop(state.attempt_id, None)
                elif state.attempt_id in self.held:
                    self._hold(state, now)
            self.outbox.put(replies.renewed(reply_to, outcome), len(outcome.attempts) * replies.STATE_BYTES)
        self._drained()

    # --- assignments

    def assign(self, assignment: Assignment, now: float) -> None:
        """Take a seat for a claimed attempt; it is told once its payload was read."""
        self.held[assignment.attempt_id] = HeldAttempt(
            assignment.epoch, now + assignment.lease_ms / 1_000, assignment.started
        )

    def frees(self, command: FinishAttempt | DeclineAttempt) -> bool:
        """Tell whether a command is about to give a seat back, as far as this process knows."""
        held = self.held.get(command.attempt_id)
        if held is None or held.epoch != command.epoch:
            return False
        return held.is_started == isinstance(command, FinishAttempt)

    def tell_cancel(self, attempt_id: bytes, *, is_live: bool) -> None:
        """Tell the worker, once, that somebody wants an attempt cancelled; one that has ended takes no seat."""
        held = self.held.get(attempt_id)
        if held is None:
            return
        if not held.cancel_told:
            held.cancel_told = True
            self.outbox.put(messages.CancelRequested(attempt_id=attempt_id.hex()))
        if not is_live:
            del self.held[attempt_id]
            self._drained()

    def forget_expired(self, before: float) -> None:
        """Free seats of attempts whose lease ended long ago without a word from the worker."""
        expired = [attempt_id for attempt_id, held in self.held.items() if held.expires_at < before]
        for attempt_id in expired:
            del self.held[attempt_id]
        if expired:
            self._drained()

    def declines(self, command: DeclineAttempt) -> None:
        """Take a decline for what it says: what a draining worker gives back at once would come back to it at once."""
        if command.reason is DeclineReason.DRAINING:
            self.is_draining = True

    def drain(self, reply_to: str) -> None:
        """Assign nothing more; `drained` follows once nothing is in flight."""
        self.is_draining = True
        self._drain_reply = reply_to
        self._drained()

    def _drained(self) -> None:
        if self._drain_reply and self.phase is Phase.OPEN and not self.held and self.in_flight == 0:
            self.outbox.put(messages.Drained(reply_to=self._drain_reply))
            self._drain_reply = None

    def _hold(self, state: LeaseState, now: float) -> None:
        held = self.held.get(state.attempt_id)
        if held is None:
            held = self.held[state.attempt_id] = HeldAttempt(state.epoch, 0.0)
        held.expires_at = now + state.lease_ms / 1_000
        held.is_started = state.state == "RUNNING"
        held.cancel_told = held.cancel_told or state.cancel_requested
