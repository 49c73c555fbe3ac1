"""The I/O-free core of a worker session: messages and clock readings in, actions and frames out.

One core lives as long as its worker and outlasts connections: attempts, unanswered commands and their ids survive
a reconnect. Clock readings are seconds of any monotonic clock. See docs/worker-protocol.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Any, Final

from orbit_sdk._errors import ProtocolError, SessionRefused
from orbit_sdk._held import (
    Action,
    AskCancel,
    DrainedByServer,
    Held,
    Note,
    Phase,
    Ready,
    Reconnect,
    Registration,
    Run,
    Stop,
    StopReason,
)
from orbit_sdk._messages import (
    ATTEMPTS_PER_MESSAGE,
    Assign,
    CancelRequested,
    ClientMessage,
    Decline,
    Declined,
    Drain,
    Drained,
    ErrorMessage,
    ErrorText,
    Hello,
    Recorded,
    Refused,
    Renew,
    Renewed,
    RenewedAttempt,
    Result,
    Resume,
    Resumed,
    ResumedAttempt,
    Start,
    Started,
    Welcome,
    decode_frame,
    encode_frame,
    parse_token,
)
from orbit_sdk._outcomes import OUTPUT_MAX_BYTES, SUCCEEDED, Outcome, unusable_output

DEFAULT_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 60.0
# Renewal periods after which an unanswered command is repeated on a living connection.
SILENT_ROUNDS: Final = 2
# The server's invitation to repeat the same command.
_PASSING_CODES: Final = frozenset({"RATE_LIMITED", "QUEUE_PAUSED", "UNAVAILABLE"})


class _Stage(Enum):
    CLOSED = "CLOSED"
    GREETING = "GREETING"
    RESUMING = "RESUMING"
    OPEN = "OPEN"


class SessionCore:
    """The state of one worker across its connections."""

    def __init__(
        self, registration: Registration, *, random: Callable[[], float], cancel_on_lapse: bool = False
    ) -> None:
        self._registration = registration
        self._handler_keys = registration.handler_keys()
        self._effects = {(h.name, h.version): h.effect for h in registration.handlers}
        self._random = random
        self._cancel_on_lapse = cancel_on_lapse
        self._stage = _Stage.CLOSED
        self._held: dict[str, Held] = {}
        self._by_command: dict[str, Held] = {}
        self._urgent: deque[ClientMessage] = deque()
        self._outgoing: deque[ClientMessage] = deque()
        self._later: list[tuple[float, int, str]] = []
        self._pending_resumes: dict[str, Resume] = {}
        self._numbers = count(1)
        self._id_prefix = registration.worker_id[:8]
        self._hello_id = ""
        self._renew_seconds = 10.0
        self._next_renew = float("inf")
        self._round = 0
        self._offered = 0
        self._executing = 0
        self._is_draining = False
        self.output_limit = OUTPUT_MAX_BYTES
        self._on: dict[type, Callable[[Any, float, list[Action]], None]] = {
            Welcome: self._on_welcome,
            Resumed: self._on_resumed,
            Assign: self._on_assign,
            Started: self._on_started,
            Refused: self._on_refused,
            Renewed: self._on_renewed,
            Recorded: self._on_recorded,
            Declined: self._on_declined,
            CancelRequested: self._on_cancel_requested,
            Drained: self._on_drained,
            ErrorMessage: self._on_error,
        }

    # --- what the shell tells

    def connect(self, now: float) -> None:
        """A connection is open: greet."""
        self.disconnect(now)
        registration = self._registration
        self._stage = _Stage.GREETING
        self._hello_id = self._new_id()
        self._urgent.append(
            Hello(
                id=self._hello_id,
                worker_id=registration.worker_id,
                sdk=registration.sdk,
                queues=list(registration.queues),
                handlers=list(registration.handlers),
                capacity=registration.capacity,
                concurrency_keys=registration.concurrency_keys,
                name=registration.name,
            )
        )

    def disconnect(self, now: float) -> None:
        """The connection is gone: what was not answered will be repeated on the next one."""
        del now
        self._stage = _Stage.CLOSED
        self._urgent.clear()
        self._outgoing.clear()
        self._later.clear()
        self._pending_resumes.clear()
        self._next_renew = float("inf")

    def receive(self, frame: str | bytes, now: float) -> list[Action]:
        """Take one frame. Raises ProtocolError for a broken protocol, SessionRefused for a refused worker."""
        actions: list[Action] = []
        for message in decode_frame(frame):
            self._on[type(message)](message, now, actions)
        return actions

    def finish(self, attempt_id: str, outcome: Outcome) -> None:
        """A handler has ended; its outcome is kept and repeated until the server acknowledges it."""
        self._executing -= 1
        held = self._held.get(attempt_id)
        if held is None or held.phase is not Phase.RUNNING:
            return
        held.phase = Phase.REPORTING
        self._command(held, self._result(held, outcome))

    def drain(self) -> None:
        """Ask for no more assignments and give back what has not started. Idempotent."""
        if self._is_draining:
            return
        self._is_draining = True
        if self._stage is _Stage.OPEN:
            self._urgent.append(Drain(self._new_id()))
        for held in list(self._held.values()):
            if held.phase is Phase.OFFERED and not held.in_doubt:
                self._decline(held, "DRAINING")

    def tick(self, now: float) -> list[Action]:
        """Do what is due: renewals, repeats, lapsed leases."""
        actions: list[Action] = []
        if self._stage is not _Stage.CLOSED:
            while self._later and self._later[0][0] <= now:
                self._repeat(heapq.heappop(self._later)[2], now)
            if now >= self._next_renew:
                self._renew(now)
        if self._cancel_on_lapse:
            for held in self._held.values():
                if held.phase is Phase.RUNNING and not held.is_stopped and held.lease.until <= now:
                    held.is_stopped = True
                    actions.append(Stop(held.ref.attempt_id, StopReason.LEASE_LAPSED))
        return actions

    def next_tick(self) -> float:
        """When `tick` has something to do; `inf` if nothing is due by itself."""
        due = self._next_renew
        if self._later:
            due = min(due, self._later[0][0])
        if self._cancel_on_lapse:
            held = self._held.values()
            running = (h.lease.until for h in held if h.phase is Phase.RUNNING and not h.is_stopped)
            due = min(due, min(running, default=due))
        return due

    def next_frame(self) -> str | None:
        """The next frame to send, None when there is nothing: renewals and session control go before the rest."""
        if self._urgent:
            return encode_frame(self._urgent)
        if self._outgoing:
            return encode_frame(self._outgoing)
        return None

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is held and no handler runs."""
        return not self._held and self._executing == 0

    @property
    def is_open(self) -> bool:
        """Whether the current connection is past hello and resume."""
        return self._stage is _Stage.OPEN

    @property
    def held_count(self) -> int:
        """Attempts that are held, those with unacknowledged ends included."""
        return len(self._held)

    # --- session messages

    def _on_welcome(self, message: Welcome, now: float, actions: list[Action]) -> None:
        if self._stage is not _Stage.GREETING or message.reply_to != self._hello_id:
            raise ProtocolError("a welcome that nobody asked for")
        self._renew_seconds = max(message.renew_ms, 1) / 1000
        self.output_limit = message.limits.get("output_bytes", OUTPUT_MAX_BYTES)
        if message.generation == 1 and not self._held:
            self._open(now, actions)
            return
        self._stage = _Stage.RESUMING
        # Attempts in progress first: should the list need several messages, these are safe the earliest.
        order = sorted(self._held.values(), key=lambda held: held.phase in {Phase.REPORTING, Phase.DECLINING})
        refs = [held.ref for held in order]
        for start in range(0, max(len(refs), 1), ATTEMPTS_PER_MESSAGE):
            resume = Resume(self._new_id(), refs[start : start + ATTEMPTS_PER_MESSAGE])
            self._pending_resumes[resume.id] = resume
            self._urgent.append(resume)

    def _on_resumed(self, message: Resumed, now: float, actions: list[Action]) -> None:
        if self._pending_resumes.pop(message.reply_to, None) is None:
            raise ProtocolError("a resumed that nobody asked for")
        for answer in message.attempts:
            self._settle_ownership(answer, now, actions, is_owned=answer.owned)
        if not self._pending_resumes:
            self._open(now, actions)

    def _open(self, now: float, actions: list[Action]) -> None:
        self._stage = _Stage.OPEN
        self._schedule_renewal(now)
        if self._is_draining:
            self._urgent.append(Drain(self._new_id()))
        for held in self._held.values():
            self._hand_over(held)
        actions.append(Ready())

    def _on_drained(self, message: Drained, now: float, actions: list[Action]) -> None:
        del message, now
        actions.append(DrainedByServer())

    # --- assignments and starts

    def _on_assign(self, message: Assign, now: float, actions: list[Action]) -> None:
        self._check_key(message)
        known = self._held.get(message.attempt_id)
        if known is not None:
            known.lease.until = now + message.lease_ms / 1000
            return
        held = Held(message, now=now)
        self._held[message.attempt_id] = held
        is_offered_handler = (message.task.handler, message.task.handler_version) in self._handler_keys
        if message.started:
            self._take_started(held, now, actions, is_supported=is_offered_handler)
            return
        self._offered += 1
        if not is_offered_handler:
            self._decline(held, "UNSUPPORTED")
        elif self._is_draining:
            self._decline(held, "DRAINING")
        elif self._offered + self._executing > self._registration.capacity:
            self._decline(held, "BUSY")
        else:
            self._command(held, Start(self._new_id(), message.attempt_id, message.epoch))

    def _check_key(self, message: Assign) -> None:
        is_keyed = bool(message.task.concurrency_key)
        if is_keyed and not self._registration.concurrency_keys:
            raise ProtocolError("a keyed task was assigned to a worker that did not declare concurrency_keys")
        if is_keyed != (message.concurrency_token is not None):
            what = "a keyed task without a token" if is_keyed else "a token without a key"
            raise ProtocolError(f"{what} was assigned (task {message.task.id})")
        parse_token(message.concurrency_token)

    def _take_started(self, held: Held, now: float, actions: list[Action], *, is_supported: bool) -> None:
        """An eager start: the attempt already counts, so it runs even beyond capacity."""
        if is_supported:
            self._run(held, held.assign.task.deadline_ms, now, actions)
            return
        held.phase = Phase.REPORTING
        text = "this worker does not offer the handler"
        self._command(held, self._result(held, Outcome("RETRY", None, "UNSUPPORTED", text)))

    def _on_started(self, message: Started, now: float, actions: list[Action]) -> None:
        held = self._answered(message.reply_to)
        if held is None or held.phase is not Phase.OFFERED:
            return
        self._offered -= 1
        held.lease.until = now + message.lease_ms / 1000
        self._run(held, message.deadline_ms, now, actions)

    def _run(self, held: Held, deadline_ms: int | None, now: float, actions: list[Action]) -> None:
        held.phase = Phase.RUNNING
        held.command = None
        self._executing += 1
        actions.append(Run(held, None if deadline_ms is None else now + deadline_ms / 1000))

    def _on_refused(self, message: Refused, now: float, actions: list[Action]) -> None:
        held = self._answered(message.reply_to)
        if held is None or held.phase is not Phase.OFFERED:
            return
        if message.code in _PASSING_CODES:
            self._postpone_start(held, message.retry_after_ms, now)
            return
        self._drop(held)
        if message.code not in {"CANCELLED", "DEADLINE_EXCEEDED"}:
            actions.append(_note("start refused", held, message.code, message.message))

    def _postpone_start(self, held: Held, retry_after_ms: int | None, now: float) -> None:
        """The start was surely not granted: repeat it within the lease, else give the attempt back."""
        repeat_at = now + _pause(retry_after_ms)
        if held.lease.until <= now:
            self._drop(held)
        elif self._is_draining:
            self._decline(held, "DRAINING")
        elif repeat_at >= held.give_up_at:
            self._decline(held, "BUSY")
        else:
            assert isinstance(held.command, Start)
            self._by_command[held.command.id] = held
            self._schedule(held.command.id, repeat_at)

    # --- ends

    def _on_recorded(self, message: Recorded, now: float, actions: list[Action]) -> None:
        del now
        held = self._answered(message.reply_to)
        if held is None:
            return
        self._drop(held)
        if message.disposition == "LATE":
            actions.append(_note("result came late", held, message.disposition, message.task_state))

    def _on_declined(self, message: Declined, now: float, actions: list[Action]) -> None:
        del now, actions
        held = self._answered(message.reply_to)
        if held is not None:
            self._drop(held)

    def _decline(self, held: Held, reason: str) -> None:
        if held.phase is Phase.OFFERED:
            self._offered -= 1
        self._forget_command(held)
        held.phase = Phase.DECLINING
        self._command(held, Decline(self._new_id(), held.ref.attempt_id, held.ref.epoch, reason))

    def _result(self, held: Held, outcome: Outcome) -> Result:
        error = None if outcome.code is None else ErrorText(outcome.code, outcome.message or "")
        return Result(
            id=self._new_id(),
            attempt_id=held.ref.attempt_id,
            epoch=held.ref.epoch,
            outcome=outcome.kind,
            output=outcome.output,
            error=error,
            retry_after_ms=outcome.retry_after_ms,
        )

    # --- leases

    def _renew(self, now: float) -> None:
        refs = [held.ref for held in self._held.values() if held.phase is not Phase.DECLINING]
        for start in range(0, len(refs), ATTEMPTS_PER_MESSAGE):
            self._urgent.append(Renew(self._new_id(), refs[start : start + ATTEMPTS_PER_MESSAGE]))
        self._schedule_renewal(now)
        self._round += 1
        if self._outgoing:
            return
        for held in self._held.values():
            # Commands are idempotent by their id: one that stayed unanswered for long is asked again.
            if held.in_doubt and self._round - held.sent_round > SILENT_ROUNDS:
                self._hand_over(held)

    def _schedule_renewal(self, now: float) -> None:
        self._next_renew = now + self._renew_seconds * (0.8 + 0.2 * self._random())

    def _on_renewed(self, message: Renewed, now: float, actions: list[Action]) -> None:
        for answer in message.attempts:
            self._settle_ownership(answer, now, actions, is_owned=answer.ok)

    def _settle_ownership(
        self, answer: RenewedAttempt | ResumedAttempt, now: float, actions: list[Action], *, is_owned: bool
    ) -> None:
        held = self._held.get(answer.attempt_id)
        if held is None or held.ref.epoch != answer.epoch:
            return
        if is_owned:
            held.lease.until = now + answer.lease_ms / 1000
            if answer.cancel_requested and held.phase is Phase.RUNNING:
                actions.append(AskCancel(answer.attempt_id))
        elif held.phase is Phase.RUNNING:
            self._drop(held)
            actions.append(Stop(answer.attempt_id, StopReason.LOST))
        elif held.phase is not Phase.REPORTING:
            # A result may have been recorded without our knowing: it stays until it is answered itself.
            self._drop(held)

    def _on_cancel_requested(self, message: CancelRequested, now: float, actions: list[Action]) -> None:
        del now
        held = self._held.get(message.attempt_id)
        if held is not None and held.phase is Phase.RUNNING:
            actions.append(AskCancel(message.attempt_id))

    # --- refusals

    def _on_error(self, message: ErrorMessage, now: float, actions: list[Action]) -> None:
        if message.reply_to == self._hello_id and self._stage is _Stage.GREETING:
            if message.code not in _PASSING_CODES:
                raise SessionRefused(message.code, message.message)
            actions.append(Reconnect(_pause(message.retry_after_ms), f"hello: {message.code}"))
        elif message.reply_to in self._pending_resumes:
            actions.append(Reconnect(_pause(message.retry_after_ms), f"resume: {message.code}"))
        elif message.reply_to in self._by_command:
            self._refuse_command(self._by_command[message.reply_to], message, now, actions)
        else:
            fields = {"code": message.code, "message": message.message, "reply_to": message.reply_to}
            actions.append(Note("the dispatcher reports an error", fields))
            if self._stage is _Stage.OPEN:
                # It may have been a renewal: ask again soon, the leases run on.
                soon = now + min(_pause(message.retry_after_ms), self._renew_seconds / 2)
                self._next_renew = min(self._next_renew, soon)

    def _refuse_command(self, held: Held, message: ErrorMessage, now: float, actions: list[Action]) -> None:
        command = held.command
        assert command is not None
        if message.code in _PASSING_CODES:
            # Unlike a refused start, this may hide a command that was carried out: the same id will tell.
            self._schedule(command.id, now + _pause(message.retry_after_ms))
            return
        self._forget_command(held)
        actions.append(_note(f"{command.__struct_config__.tag} refused", held, message.code, message.message))
        is_unusable = message.code in {"INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE"}
        if isinstance(command, Result) and is_unusable and command.outcome == SUCCEEDED:
            task = held.assign.task
            effect = self._effects.get((task.handler, task.handler_version))
            text = f"the output was refused: {message.message}"
            self._command(held, self._result(held, unusable_output("OUTPUT_INVALID", text, effect=effect)))
            return
        self._drop(held)

    # --- commands

    def _command(self, held: Held, command: Start | Result | Decline) -> None:
        held.command = command
        held.in_doubt = False
        self._by_command[command.id] = held
        if self._stage is _Stage.OPEN:
            self._hand_over(held)

    def _hand_over(self, held: Held) -> None:
        if held.command is not None:
            self._outgoing.append(held.command)
            held.in_doubt = True
            held.sent_round = self._round

    def _answered(self, reply_to: str) -> Held | None:
        held = self._by_command.pop(reply_to, None)
        if held is not None:
            held.in_doubt = False
        return held

    def _forget_command(self, held: Held) -> None:
        if held.command is not None:
            self._by_command.pop(held.command.id, None)
            held.command = None
        held.in_doubt = False

    def _drop(self, held: Held) -> None:
        if held.phase is Phase.OFFERED:
            self._offered -= 1
        self._forget_command(held)
        self._held.pop(held.ref.attempt_id, None)

    def _schedule(self, command_id: str, due: float) -> None:
        heapq.heappush(self._later, (due, next(self._numbers), command_id))

    def _repeat(self, command_id: str, now: float) -> None:
        held = self._by_command.get(command_id)
        if held is None or held.command is None or self._stage is not _Stage.OPEN:
            return
        if held.phase is Phase.OFFERED and not held.in_doubt and held.lease.until <= now:
            self._drop(held)
            return
        self._hand_over(held)

    def _new_id(self) -> str:
        return f"{self._id_prefix}-{next(self._numbers):x}"


def _pause(retry_after_ms: int | None) -> float:
    """Seconds to wait before a repeat."""
    if retry_after_ms is None:
        return DEFAULT_RETRY_SECONDS
    return min(max(retry_after_ms / 1000, 0.001), LONGEST_RETRY_SECONDS)


def _note(event: str, held: Held, code: str, message: str) -> Note:
    fields = {
        "task_id": held.assign.task.id,
        "attempt_id": held.ref.attempt_id,
        "code": code,
        "message": message,
    }
    return Note(event, fields)
