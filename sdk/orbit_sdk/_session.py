"""The I/O-free core of a worker session: messages and clock readings in, actions and frames out.

One core lives as long as its worker and outlasts connections: attempts, unanswered commands and their ids survive
a reconnect. Clock readings are seconds of any monotonic clock. See docs/worker-protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from orbit_sdk._book import Book
from orbit_sdk._errors import ProtocolError, SessionRefused
from orbit_sdk._frames import decode_frame
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
    AttemptRef,
    CancelRequested,
    Decline,
    Declined,
    Drain,
    Drained,
    ErrorMessage,
    Recorded,
    Refused,
    Renew,
    Renewed,
    RenewedAttempt,
    Resume,
    Resumed,
    ResumedAttempt,
    Start,
    Started,
    Welcome,
    parse_token,
)
from orbit_sdk._outcomes import OUTPUT_MAX_BYTES, Outcome
from orbit_sdk._reports import build_hello, build_result, replacement_for

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
        self._effects = registration.effects()
        self._random = random
        self._cancel_on_lapse = cancel_on_lapse
        self._book = Book(registration.worker_id[:8])
        self._stage = _Stage.CLOSED
        self._hello_id = ""
        self._pending_resumes: set[str] = set()
        self._renew_seconds = 10.0
        self._next_renew = float("inf")
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

    def connect(self) -> None:
        """A connection is open: greet."""
        self.disconnect()
        self._stage = _Stage.GREETING
        self._hello_id = self._book.new_id()
        self._book.send_first(build_hello(self._hello_id, self._registration))

    def disconnect(self) -> None:
        """The connection is gone: what was not answered will be repeated on the next one."""
        self._stage = _Stage.CLOSED
        self._book.close()
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
        held = self._book.held.get(attempt_id)
        if held is not None and held.phase is Phase.RUNNING:
            self._report(held, outcome)

    def drain(self) -> None:
        """Ask for no more assignments and give back what has not started. Idempotent."""
        if self._is_draining:
            return
        self._is_draining = True
        if self._stage is _Stage.OPEN:
            self._book.send_first(Drain(self._book.new_id()))
        for held in list(self._book.held.values()):
            if held.phase is Phase.OFFERED and not held.in_doubt:
                self._decline(held, "DRAINING")

    def tick(self, now: float) -> list[Action]:
        """Do what is due: repeats, renewals, lapsed leases."""
        for held in list(self._book.due_repeats(now)):
            if held.phase is Phase.OFFERED and not held.in_doubt and held.lease.until <= now:
                self._book.drop(held)
            else:
                self._book.repeat(held)
        if now >= self._next_renew:
            self._renew(now)
        return self._stop_lapsed(now) if self._cancel_on_lapse else []

    def next_tick(self) -> float:
        """When `tick` has something to do; `inf` if nothing is due by itself."""
        due = min(self._next_renew, self._book.next_repeat())
        if self._cancel_on_lapse:
            due = min(due, min((held.lease.until for held in self._lapsing()), default=due))
        return due

    def next_frame(self) -> str | None:
        """The next frame to send, None when there is nothing: renewals and session control go before the rest."""
        return self._book.next_frame()

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is held and no handler runs."""
        return not self._book.held and self._executing == 0

    @property
    def is_open(self) -> bool:
        """Whether the current connection is past hello and resume."""
        return self._stage is _Stage.OPEN

    @property
    def patience(self) -> float:
        """Seconds that may pass between tries to connect: a renewal period while leases run out, else any number."""
        return self._renew_seconds if self._book.held else float("inf")

    @property
    def held_count(self) -> int:
        """Attempts that are held, those with unacknowledged ends included."""
        return len(self._book.held)

    # --- session messages

    def _on_welcome(self, message: Welcome, now: float, actions: list[Action]) -> None:
        if self._stage is not _Stage.GREETING or message.reply_to != self._hello_id:
            raise ProtocolError("a welcome that nobody asked for")
        self._renew_seconds = max(message.renew_ms, 1) / 1000
        limit = message.limits.get("output_bytes")
        self.output_limit = limit if isinstance(limit, int) else OUTPUT_MAX_BYTES
        if message.generation == 1 and not self._book.held:
            self._open(now, actions)
            return
        self._stage = _Stage.RESUMING
        # Attempts in progress first: should the list need several messages, these are safe the earliest.
        ending = {Phase.REPORTING, Phase.DECLINING}
        refs = [held.ref for held in sorted(self._book.held.values(), key=lambda held: held.phase in ending)]
        for part in _parts(refs) or [[]]:
            resume = Resume(self._book.new_id(), part)
            self._pending_resumes.add(resume.id)
            self._book.send_first(resume)

    def _on_resumed(self, message: Resumed, now: float, actions: list[Action]) -> None:
        if message.reply_to not in self._pending_resumes:
            raise ProtocolError("a resumed that nobody asked for")
        self._pending_resumes.remove(message.reply_to)
        for answer in message.attempts:
            self._settle_ownership(answer, now, actions, is_owned=answer.owned)
        if not self._pending_resumes:
            self._open(now, actions)

    def _open(self, now: float, actions: list[Action]) -> None:
        self._stage = _Stage.OPEN
        self._schedule_renewal(now)
        if self._is_draining:
            self._book.send_first(Drain(self._book.new_id()))
        self._book.open()
        actions.append(Ready())

    def _on_drained(self, message: Drained, now: float, actions: list[Action]) -> None:
        del message, now
        actions.append(DrainedByServer())

    # --- assignments and starts

    def _on_assign(self, message: Assign, now: float, actions: list[Action]) -> None:
        self._check_key(message)
        known = self._book.held.get(message.attempt_id)
        if known is not None:
            known.lease.until = now + message.lease_ms / 1000
            return
        held = Held(message, now=now)
        self._book.add(held, is_offered=not message.started)
        is_supported = (message.task.handler, message.task.handler_version) in self._effects
        if message.started:
            self._take_started(held, now, actions, is_supported=is_supported)
        elif not is_supported:
            self._decline(held, "UNSUPPORTED")
        elif self._is_draining:
            self._decline(held, "DRAINING")
        elif self._book.offered + self._executing > self._registration.capacity:
            self._decline(held, "BUSY")
        else:
            self._book.command(held, Start(self._book.new_id(), message.attempt_id, message.epoch))

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
        else:
            self._report(
                held, Outcome("RETRY", None, "UNSUPPORTED", "this worker does not offer the handler")
            )

    def _on_started(self, message: Started, now: float, actions: list[Action]) -> None:
        held = self._book.find(message.reply_to)
        if held is not None and held.phase is Phase.OFFERED:
            held.lease.until = now + message.lease_ms / 1000
            self._book.move(held, Phase.RUNNING)
            self._run(held, message.deadline_ms, now, actions)

    def _run(self, held: Held, deadline_ms: int | None, now: float, actions: list[Action]) -> None:
        self._executing += 1
        actions.append(Run(held, None if deadline_ms is None else now + deadline_ms / 1000))

    def _on_refused(self, message: Refused, now: float, actions: list[Action]) -> None:
        held = self._book.find(message.reply_to)
        if held is None or held.phase is not Phase.OFFERED:
            return
        held.in_doubt = False
        if message.code in _PASSING_CODES:
            self._postpone_start(held, message.retry_after_ms, now)
            return
        self._book.drop(held)
        if message.code not in {"CANCELLED", "DEADLINE_EXCEEDED"}:
            actions.append(_note("start refused", held, message.code, message.message))

    def _postpone_start(self, held: Held, retry_after_ms: int | None, now: float) -> None:
        """The start was surely not granted: repeat it within the lease, else give the attempt back."""
        due = now + _pause(retry_after_ms)
        if held.lease.until <= now:
            self._book.drop(held)
        elif self._is_draining:
            self._decline(held, "DRAINING")
        elif due >= held.give_up_at:
            self._decline(held, "BUSY")
        else:
            self._book.repeat_at(held, due)

    # --- ends

    def _report(self, held: Held, outcome: Outcome) -> None:
        self._book.move(held, Phase.REPORTING)
        self._book.command(held, build_result(self._book.new_id(), held.ref, outcome))

    def _on_recorded(self, message: Recorded, now: float, actions: list[Action]) -> None:
        del now
        held = self._book.find(message.reply_to)
        if held is None:
            return
        self._book.drop(held)
        if message.disposition == "LATE":
            actions.append(_note("result came late", held, message.disposition, message.task_state))

    def _on_declined(self, message: Declined, now: float, actions: list[Action]) -> None:
        del now, actions
        held = self._book.find(message.reply_to)
        if held is not None:
            self._book.drop(held)

    def _decline(self, held: Held, reason: str) -> None:
        self._book.move(held, Phase.DECLINING)
        decline = Decline(self._book.new_id(), held.ref.attempt_id, held.ref.epoch, reason)
        self._book.command(held, decline)

    # --- leases

    def _renew(self, now: float) -> None:
        book = self._book
        refs = [held.ref for held in book.held.values() if held.phase is not Phase.DECLINING]
        for part in _parts(refs):
            book.send_first(Renew(book.new_id(), part))
        self._schedule_renewal(now)
        book.round += 1
        book.repeat_silent(SILENT_ROUNDS)

    def _schedule_renewal(self, now: float) -> None:
        self._next_renew = now + self._renew_seconds * (0.8 + 0.2 * self._random())

    def _on_renewed(self, message: Renewed, now: float, actions: list[Action]) -> None:
        for answer in message.attempts:
            self._settle_ownership(answer, now, actions, is_owned=answer.ok)

    def _settle_ownership(
        self, answer: RenewedAttempt | ResumedAttempt, now: float, actions: list[Action], *, is_owned: bool
    ) -> None:
        held = self._book.held.get(answer.attempt_id)
        if held is None or held.ref.epoch != answer.epoch:
            return
        if is_owned:
            held.lease.until = now + answer.lease_ms / 1000
            if answer.cancel_requested and held.phase is Phase.RUNNING:
                actions.append(AskCancel(answer.attempt_id))
        elif held.phase is Phase.RUNNING:
            self._book.drop(held)
            actions.append(Stop(answer.attempt_id, StopReason.LOST))
        elif held.phase is not Phase.REPORTING:
            # A result may have been recorded without our knowing: it stays until it is answered itself.
            self._book.drop(held)

    def _on_cancel_requested(self, message: CancelRequested, now: float, actions: list[Action]) -> None:
        del now
        held = self._book.held.get(message.attempt_id)
        if held is not None and held.phase is Phase.RUNNING:
            actions.append(AskCancel(message.attempt_id))

    def _lapsing(self) -> list[Held]:
        held = self._book.held.values()
        return [each for each in held if each.phase is Phase.RUNNING and not each.is_stopped]

    def _stop_lapsed(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for held in self._lapsing():
            if held.lease.until <= now:
                held.is_stopped = True
                actions.append(Stop(held.ref.attempt_id, StopReason.LEASE_LAPSED))
        return actions

    # --- refusals

    def _on_error(self, message: ErrorMessage, now: float, actions: list[Action]) -> None:
        held = self._book.find(message.reply_to)
        if held is not None:
            self._refuse_command(held, message, now, actions)
        elif message.reply_to == self._hello_id and self._stage is _Stage.GREETING:
            if message.code not in _PASSING_CODES:
                raise SessionRefused(message.code, message.message)
            actions.append(Reconnect(f"hello: {message.code}"))
        elif message.reply_to in self._pending_resumes:
            actions.append(Reconnect(f"resume: {message.code}"))
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
            self._book.repeat_at(held, now + _pause(message.retry_after_ms))
            return
        kind = str(command.__struct_config__.tag)
        actions.append(_note(f"{kind} refused", held, message.code, message.message))
        task = held.assign.task
        effect = self._effects.get((task.handler, task.handler_version))
        replacement = replacement_for(command, message, effect=effect)
        if replacement is None:
            self._book.drop(held)
        else:
            self._report(held, replacement)


def _parts(refs: list[AttemptRef]) -> list[list[AttemptRef]]:
    """The list in as many parts as the protocol's bound asks for."""
    return [refs[start : start + ATTEMPTS_PER_MESSAGE] for start in range(0, len(refs), ATTEMPTS_PER_MESSAGE)]


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
