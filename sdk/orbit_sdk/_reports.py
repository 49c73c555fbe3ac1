"""Messages built from what this side knows: the registration as a hello, an outcome as a result."""

from __future__ import annotations

from typing import Final

from orbit_sdk._held import Registration
from orbit_sdk._messages import AttemptRef, Decline, ErrorMessage, ErrorText, Hello, Result, Start
from orbit_sdk._outcomes import SUCCEEDED, Outcome, unusable_output

_UNUSABLE_CODES: Final = frozenset({"INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE"})


def build_hello(message_id: str, registration: Registration) -> Hello:
    """The greeting of a worker."""
    return Hello(
        id=message_id,
        worker_id=registration.worker_id,
        sdk=registration.sdk,
        queues=list(registration.queues),
        handlers=list(registration.handlers),
        capacity=registration.capacity,
        concurrency_keys=registration.concurrency_keys,
        name=registration.name,
    )


def build_result(message_id: str, ref: AttemptRef, outcome: Outcome) -> Result:
    """The report of an outcome."""
    return Result(
        id=message_id,
        attempt_id=ref.attempt_id,
        epoch=ref.epoch,
        outcome=outcome.kind,
        output=outcome.output,
        error=None if outcome.code is None else ErrorText(outcome.code, outcome.message or ""),
        retry_after_ms=outcome.retry_after_ms,
    )


def replacement_for(
    command: Start | Result | Decline, refusal: ErrorMessage, *, effect: str | None
) -> Outcome | None:
    """What to report instead of a refused success whose output cannot be stored; None where nothing helps."""
    if not isinstance(command, Result) or command.outcome != SUCCEEDED or refusal.code not in _UNUSABLE_CODES:
        return None
    return unusable_output("OUTPUT_INVALID", f"the output was refused: {refusal.message}", effect=effect)
