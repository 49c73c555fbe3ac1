"""Client messages as typed commands of Pulse. A rule across fields that is broken is refused, not fatal."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from orbit.domain.errors import InvalidArgument, OrbitError, PayloadTooLarge
from orbit.domain.ids import new_id
from orbit.domain.keys import clean_error_code, clean_error_message
from orbit.domain.limits import OUTPUT_MAX_BYTES, WORKER_PRODUCT_MAX
from orbit.domain.states import Outcome
from orbit.domain.wire import parse_uint64
from orbit.kernel.caller import Token
from orbit.pulse.commands import DeclineAttempt, FinishAttempt, StartAttempt
from orbit.pulse.session_commands import AttemptRef, HandlerOffer, OpenSession, RenewLeases, ResumeSession
from orbit.scheduler import messages


def open_command(message: messages.Hello, *, token: Token, dispatcher_id: bytes) -> OpenSession:
    """Return the registration that a hello asks for.

    Raises:
        InvalidArgument: a queue or handler twice, or more than 512 pairs of them.
    """
    queues = tuple(bytes.fromhex(queue_id) for queue_id in message.queues)
    handlers = tuple(_offer(offer) for offer in message.handlers)
    if len(set(queues)) < len(queues):
        raise InvalidArgument("must not name a queue twice", field="queues")
    if len({(offer.name, offer.version) for offer in handlers}) < len(handlers):
        raise InvalidArgument("must not name a handler's version twice", field="handlers")
    if len(queues) * len(handlers) > WORKER_PRODUCT_MAX:
        raise InvalidArgument(f"queues times handlers must not exceed {WORKER_PRODUCT_MAX}", field="handlers")
    return OpenSession(
        token=token,
        session_id=new_id(),
        worker_ref=new_id(),
        dispatcher_id=dispatcher_id,
        worker_id=bytes.fromhex(message.worker_id),
        name=None if message.name is UNSET else message.name,
        sdk=message.sdk,
        queue_ids=queues,
        handlers=handlers,
        capacity=message.capacity,
        concurrency_keys=message.concurrency_keys,
    )


def resume_command(message: messages.Resume, session_id: bytes, lease_ms: int) -> ResumeSession:
    return ResumeSession(session_id=session_id, attempts=_refs(message.attempts), lease_ms=lease_ms)


def renew_command(message: messages.Renew, session_id: bytes, lease_ms: int) -> RenewLeases:
    return RenewLeases(session_id=session_id, attempts=_refs(message.attempts), lease_ms=lease_ms)


def start_command(message: messages.Start, session_id: bytes, lease_ms: int) -> StartAttempt:
    return StartAttempt(
        session_id=session_id,
        command_id=message.id,
        attempt_id=bytes.fromhex(message.attempt_id),
        epoch=_epoch(message.epoch),
        lease_ms=lease_ms,
    )


def decline_command(message: messages.Decline, session_id: bytes) -> DeclineAttempt:
    return DeclineAttempt(
        session_id=session_id,
        command_id=message.id,
        attempt_id=bytes.fromhex(message.attempt_id),
        epoch=_epoch(message.epoch),
        reason=message.reason,
    )


def finish_command(message: messages.Result, session_id: bytes) -> FinishAttempt:
    """Return the result that a worker reports; what it says about a failure is cleaned so that it can be stored.

    Raises:
        InvalidArgument: a field that the outcome doesn't allow, or one that it needs.
        PayloadTooLarge: an output above 256 KiB.
    """
    output = bytes(message.output) or None
    error = None if message.error is UNSET else message.error
    _check_result(message, output, error)
    return FinishAttempt(
        session_id=session_id,
        command_id=message.id,
        attempt_id=bytes.fromhex(message.attempt_id),
        epoch=_epoch(message.epoch),
        outcome=message.outcome,
        output=output,
        error_code=None if error is None else clean_error_code(error.code),
        error_message=None if error is None else clean_error_message(error.message),
        retry_after_ms=None if message.retry_after_ms is UNSET else message.retry_after_ms,
    )


def _check_result(message: messages.Result, output: bytes | None, error: messages.Failure | None) -> None:
    refusal: OrbitError | None = None
    if message.outcome is Outcome.SUCCEEDED:
        if error is not None:
            refusal = InvalidArgument("is not allowed with SUCCEEDED", field="error")
        elif output is not None and len(output) > OUTPUT_MAX_BYTES:
            refusal = PayloadTooLarge(f"output: must have at most {OUTPUT_MAX_BYTES} bytes")
    elif output is not None:
        refusal = InvalidArgument("is allowed with SUCCEEDED only", field="output")
    elif error is None:
        refusal = InvalidArgument(f"is required with {message.outcome}", field="error")
    if message.poll is not UNSET:
        refusal = InvalidArgument("is allowed on POLL tasks only", field="poll")
    if message.retry_after_ms is not UNSET and message.outcome is not Outcome.RETRY:
        refusal = InvalidArgument("is allowed with RETRY only", field="retry_after_ms")
    if refusal is not None:
        raise refusal


def _offer(offer: messages.Offer) -> HandlerOffer:
    return HandlerOffer(
        name=offer.name,
        version=offer.version,
        effect=None if offer.effect is UNSET else offer.effect,
        eager=offer.eager,
    )


def _refs(items: Sequence[messages.Held]) -> tuple[AttemptRef, ...]:
    return tuple(
        AttemptRef(attempt_id=bytes.fromhex(item.attempt_id), epoch=_epoch(item.epoch)) for item in items
    )


def _epoch(text: str) -> int:
    # Nineteen digits always fit; only longer texts are worth the check.
    return int(text) if len(text) < 20 else parse_uint64(text, "epoch", 1)
