"""The messages of the worker protocol (docs/worker-protocol.md), each a typed record."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from orbit_sdk._errors import ProtocolError

ATTEMPTS_PER_MESSAGE: Final = 1000
UINT64_MAX: Final = 2**64 - 1

Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Decimal64 = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,19})$")]


# --- client to server


class HandlerDeclaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A handler that this worker offers; `effect` PURE, IDEMPOTENT, FENCED or ONCE."""

    name: str
    version: str
    effect: str | None = None
    eager: bool = False


class AttemptRef(msgspec.Struct, frozen=True, gc=False):
    """An attempt and the epoch under which it is held."""

    attempt_id: str
    epoch: str


class ErrorText(msgspec.Struct, frozen=True, gc=False):
    """Why an attempt did not succeed."""

    code: str
    message: str


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="hello"):
    """Registers the worker."""

    id: str
    worker_id: str
    sdk: str
    queues: list[str]
    handlers: list[HandlerDeclaration]
    capacity: int
    concurrency_keys: bool
    name: str | None = None


class Resume(msgspec.Struct, frozen=True, tag_field="type", tag="resume"):
    """Moves held attempts to this session."""

    id: str
    attempts: list[AttemptRef]


class Start(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="start"):
    """Asks for leave to run a leased attempt."""

    id: str
    attempt_id: str
    epoch: str


class Renew(msgspec.Struct, frozen=True, tag_field="type", tag="renew"):
    """Extends the leases of held attempts."""

    id: str
    attempts: list[AttemptRef]


class Result(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag="result"
):
    """The end of a running attempt."""

    id: str
    attempt_id: str
    epoch: str
    outcome: str
    output: Raw | None = None
    error: ErrorText | None = None
    retry_after_ms: int | None = None


class Decline(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="decline"):
    """Gives back an unstarted attempt."""

    id: str
    attempt_id: str
    epoch: str
    reason: str


class Drain(msgspec.Struct, frozen=True, tag_field="type", tag="drain"):
    """Asks for no more assignments."""

    id: str


ClientMessage = Hello | Resume | Start | Renew | Result | Decline | Drain


# --- server to client


class Welcome(msgspec.Struct, frozen=True, tag_field="type", tag="welcome", kw_only=True):
    """The session is open."""

    reply_to: str
    session_id: str
    generation: int
    lease_ms: int
    renew_ms: int
    limits: dict[str, Any] = {}


class ResumedAttempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one attempt that was resumed."""

    attempt_id: str
    epoch: str
    owned: bool
    state: str | None = None
    lease_ms: int = 0
    cancel_requested: bool = False


class Resumed(msgspec.Struct, frozen=True, tag_field="type", tag="resumed"):
    """Answers a resume."""

    reply_to: str
    attempts: list[ResumedAttempt]


class Started(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="started"):
    """The attempt may run."""

    reply_to: str
    lease_ms: int
    deadline_ms: int | None = None


class Refused(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="refused"):
    """The attempt may not run, or not now."""

    reply_to: str
    code: str
    message: str = ""
    retry_after_ms: int | None = None


class RenewedAttempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one lease."""

    attempt_id: str
    epoch: str
    ok: bool
    lease_ms: int = 0
    cancel_requested: bool = False
    code: str | None = None


class Renewed(msgspec.Struct, frozen=True, tag_field="type", tag="renewed"):
    """Answers a renew."""

    reply_to: str
    attempts: list[RenewedAttempt]


class Recorded(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="recorded"):
    """The result is stored: `disposition` APPLIED, DUPLICATE or LATE."""

    reply_to: str
    task_state: str
    disposition: str


class Declined(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="declined"):
    """The attempt is given back."""

    reply_to: str


class Drained(msgspec.Struct, frozen=True, tag_field="type", tag="drained"):
    """Nothing of this session is in flight."""

    reply_to: str


class TaskInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The task of an assignment. `attempt_number` counts Starts, this one included; `payload` holds the exact bytes."""

    id: Id
    queue_id: Id
    handler: str
    handler_version: str
    payload_version: str
    payload: Raw
    attempt_number: int
    max_attempts: int
    priority: int = 0
    business_key: str | None = None
    concurrency_key: str | None = None
    deadline_ms: int | None = None


class Assign(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="task.assign", kw_only=True):
    """An attempt that this worker now holds."""

    attempt_id: Id
    epoch: Decimal64
    lease_ms: int
    task: TaskInfo
    started: bool = False
    concurrency_token: Decimal64 | None = None


class CancelRequested(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="cancel.requested"):
    """Somebody wants this attempt to end."""

    attempt_id: str


class ErrorMessage(msgspec.Struct, frozen=True, tag_field="type", tag="error", kw_only=True):
    """A command was refused, or the session has a problem."""

    code: str
    message: str = ""
    reply_to: str | None = None
    retry_after_ms: int | None = None


ServerMessage = (
    Welcome
    | Resumed
    | Started
    | Refused
    | Renewed
    | Recorded
    | Declined
    | Drained
    | Assign
    | CancelRequested
    | ErrorMessage
)


def parse_token(text: str | None) -> int | None:
    """A concurrency token as an exact integer. Raises ProtocolError unless it is a non-zero uint64."""
    if text is None:
        return None
    token = int(text)
    if not 0 < token <= UINT64_MAX:
        raise ProtocolError(f"concurrency token {text} is not a non-zero uint64")
    return token
