"""The frames of worker protocol v1 as frozen records (docs/worker-protocol.md).

One decode per frame, one encode per outgoing array. Ids and epochs are text here; `commands.py` types them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from orbit.domain import limits, strictjson
from orbit.domain.errors import InvalidArgument
from orbit.domain.states import DeclineReason, Effect, Outcome, Poll

SUBPROTOCOL: Final = "orbit.worker.v1"
PATH: Final = "/v1/workers/connect"

# `\Z`, not `$`: the latter also matches before a trailing newline.
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
FrameId = Annotated[str, Meta(max_length=limits.FRAME_ID_MAX_CHARS, pattern=r"^[!-~]+\Z")]
Epoch = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,19}\Z")]
Handler = Annotated[str, Meta(max_length=limits.HANDLER_MAX_CHARS, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*\Z")]
Version = Annotated[str, Meta(max_length=limits.VERSION_MAX_CHARS, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*\Z")]
Sdk = Annotated[str, Meta(min_length=1, max_length=limits.SDK_NAME_MAX_CHARS, pattern=r"^[ -~]+\Z")]
WorkerName = Annotated[str, Meta(min_length=1, max_length=limits.WORKER_NAME_MAX_CHARS)]
Capacity = Annotated[int, Meta(ge=limits.CAPACITY_MIN, le=limits.CAPACITY_MAX)]
RetryAfter = Annotated[int, Meta(ge=0, le=limits.RETRY_AFTER_MAX_MS)]


class Received(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A part of a client message: unknown fields are refused."""


class Offer(Received, frozen=True):
    name: Handler
    version: Version
    effect: Effect | UnsetType = UNSET
    eager: bool = False


class Held(Received, frozen=True):
    attempt_id: Id
    epoch: Epoch


class Failure(Received, frozen=True):
    code: str
    message: str


class Hello(Received, frozen=True, tag_field="type", tag="hello"):
    id: FrameId
    worker_id: Id
    sdk: Sdk
    queues: Annotated[list[Id], Meta(min_length=1, max_length=limits.WORKER_QUEUES_MAX)]
    handlers: Annotated[list[Offer], Meta(min_length=1, max_length=limits.WORKER_HANDLERS_MAX)]
    capacity: Capacity
    concurrency_keys: bool
    name: WorkerName | UnsetType = UNSET


class Resume(Received, frozen=True, tag_field="type", tag="resume"):
    id: FrameId
    attempts: Annotated[list[Held], Meta(max_length=limits.CAPACITY_MAX)]


class Start(Received, frozen=True, tag_field="type", tag="start"):
    id: FrameId
    attempt_id: Id
    epoch: Epoch


class Renew(Received, frozen=True, tag_field="type", tag="renew"):
    id: FrameId
    attempts: Annotated[list[Held], Meta(max_length=limits.CAPACITY_MAX)]


class Result(Received, frozen=True, tag_field="type", tag="result"):
    """`output` holds the JSON text as it came; empty where the message has none."""

    id: FrameId
    attempt_id: Id
    epoch: Epoch
    outcome: Outcome
    output: msgspec.Raw = msgspec.Raw()
    error: Failure | UnsetType = UNSET
    retry_after_ms: RetryAfter | UnsetType = UNSET
    poll: Poll | UnsetType = UNSET


class Decline(Received, frozen=True, tag_field="type", tag="decline"):
    id: FrameId
    attempt_id: Id
    epoch: Epoch
    reason: DeclineReason


class Drain(Received, frozen=True, tag_field="type", tag="drain"):
    id: FrameId


Request = Hello | Resume | Start | Renew | Result | Decline | Drain


class Sent(Struct, frozen=True, omit_defaults=True, gc=False):
    """A part of a server message: absent optional fields are left out."""


class Limits(Sent, frozen=True):
    frame_bytes: int
    frame_messages: int
    payload_bytes: int
    output_bytes: int
    error_message_bytes: int
    capacity: int


class Welcome(Sent, frozen=True, tag_field="type", tag="welcome"):
    reply_to: str
    session_id: str
    generation: int
    lease_ms: int
    renew_ms: int
    limits: Limits


class Owned(Sent, frozen=True):
    attempt_id: str
    epoch: str
    owned: bool
    state: str | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    cancel_requested: bool | UnsetType = UNSET


class Resumed(Sent, frozen=True, tag_field="type", tag="resumed"):
    reply_to: str
    attempts: list[Owned]


class Started(Sent, frozen=True, tag_field="type", tag="started"):
    reply_to: str
    lease_ms: int
    deadline_ms: int | UnsetType = UNSET


class Refused(Sent, frozen=True, tag_field="type", tag="refused"):
    reply_to: str
    code: str
    message: str
    retry_after_ms: int | UnsetType = UNSET


class Renewal(Sent, frozen=True):
    attempt_id: str
    epoch: str
    ok: bool
    lease_ms: int | UnsetType = UNSET
    cancel_requested: bool | UnsetType = UNSET
    code: str | UnsetType = UNSET


class Renewed(Sent, frozen=True, tag_field="type", tag="renewed"):
    reply_to: str
    attempts: list[Renewal]


class Recorded(Sent, frozen=True, tag_field="type", tag="recorded"):
    reply_to: str
    task_state: str
    disposition: str


class Declined(Sent, frozen=True, tag_field="type", tag="declined"):
    reply_to: str


class Drained(Sent, frozen=True, tag_field="type", tag="drained"):
    reply_to: str


class AssignedTask(Sent, frozen=True):
    id: str
    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    payload: msgspec.Raw
    attempt_number: int
    max_attempts: int
    priority: int
    business_key: str | UnsetType = UNSET
    concurrency_key: str | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET


class TaskAssign(Sent, frozen=True, tag_field="type", tag="task.assign"):
    attempt_id: str
    epoch: str
    lease_ms: int
    task: AssignedTask
    started: bool = False
    concurrency_token: str | UnsetType = UNSET


class CancelRequested(Sent, frozen=True, tag_field="type", tag="cancel.requested"):
    attempt_id: str


class Error(Sent, frozen=True, tag_field="type", tag="error"):
    code: str
    message: str
    reply_to: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


LIMITS: Final = Limits(
    frame_bytes=limits.FRAME_MAX_BYTES,
    frame_messages=limits.FRAME_MAX_MESSAGES,
    payload_bytes=limits.PAYLOAD_MAX_BYTES,
    output_bytes=limits.OUTPUT_MAX_BYTES,
    error_message_bytes=limits.ERROR_MESSAGE_MAX_BYTES,
    capacity=limits.CAPACITY_MAX,
)

_encode = msgspec.json.Encoder().encode


def decode_frame(frame: str | bytes) -> Sequence[Any]:
    """Return a frame's 1 to 64 messages.

    Raises:
        InvalidArgument: it breaks the protocol; the connection ends with 1008.
    """
    if isinstance(frame, bytes):
        raise InvalidArgument("must be text, not binary", field="frame")
    data = frame.encode()
    if len(data) > limits.FRAME_MAX_BYTES:
        raise InvalidArgument(f"must have at most {limits.FRAME_MAX_BYTES} bytes", field="frame")
    return strictjson.decode_frames(data, Request, around=1)


def encode_frame(messages: Sequence[Sent]) -> str:
    """Return one text frame for 1 to 64 messages."""
    return _encode(messages[0] if len(messages) == 1 else messages).decode()
