"""Outcomes as the server messages that tell them (docs/worker-protocol.md)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from orbit.domain.errors import InvariantViolation, OrbitError, RateLimited, StaleAttempt, StartRefused
from orbit.pulse.commands import Assignment, DeclineAttempt, FinishAttempt, Recorded, StartAttempt, Started
from orbit.pulse.session_commands import LeaseState, Renewed, Resumed
from orbit.scheduler import messages

# What one attempt takes in a resumed or renewed message.
STATE_BYTES: Final = 160

_REFUSALS = (RateLimited, StartRefused, StaleAttempt)


def answer(
    reply_to: str, command: FinishAttempt | DeclineAttempt | StartAttempt, outcome: object
) -> messages.Sent:
    """Return the reply to a command of a tick."""
    if isinstance(outcome, Recorded):
        return messages.Recorded(
            reply_to=reply_to, task_state=outcome.task_state, disposition=outcome.disposition
        )
    if isinstance(outcome, Started):
        deadline_ms = UNSET if outcome.deadline_ms is None else outcome.deadline_ms
        return messages.Started(reply_to=reply_to, lease_ms=outcome.lease_ms, deadline_ms=deadline_ms)
    if not isinstance(outcome, OrbitError):
        return messages.Declined(reply_to=reply_to)
    if isinstance(command, StartAttempt) and isinstance(outcome, _REFUSALS):
        return messages.Refused(
            reply_to=reply_to,
            code=outcome.code,
            message=outcome.message,
            retry_after_ms=UNSET if outcome.retry_after_ms is None else outcome.retry_after_ms,
        )
    return error(reply_to, outcome)


def error(reply_to: str, failure: OrbitError) -> messages.Error:
    """Return the error message of a command refused for another reason; bugs of ours tell nothing of themselves."""
    return messages.Error(
        reply_to=reply_to,
        code=failure.code,
        message="internal error" if isinstance(failure, InvariantViolation) else failure.message,
        retry_after_ms=UNSET if failure.retry_after_ms is None else failure.retry_after_ms,
    )


def resumed(reply_to: str, outcome: Resumed) -> messages.Resumed:
    return messages.Resumed(reply_to=reply_to, attempts=[_owned(state) for state in outcome.attempts])


def renewed(reply_to: str, outcome: Renewed) -> messages.Renewed:
    return messages.Renewed(reply_to=reply_to, attempts=[_renewal(state) for state in outcome.attempts])


def assigned(assignment: Assignment, payload: bytes) -> messages.TaskAssign:
    """Return the assignment of a claimed attempt with its payload, byte for byte."""
    token = assignment.concurrency_token
    return messages.TaskAssign(
        attempt_id=assignment.attempt_id.hex(),
        epoch=str(assignment.epoch),
        lease_ms=assignment.lease_ms,
        started=assignment.started,
        concurrency_token=UNSET if token is None else str(token),
        task=messages.AssignedTask(
            id=assignment.task_id.hex(),
            queue_id=assignment.queue_id.hex(),
            handler=assignment.handler,
            handler_version=assignment.handler_version,
            payload_version=assignment.payload_version,
            payload=msgspec.Raw(payload),
            attempt_number=assignment.attempt_number,
            max_attempts=assignment.max_attempts,
            priority=assignment.priority,
            business_key=_or_unset(assignment.business_key),
            concurrency_key=_or_unset(assignment.concurrency_key),
            deadline_ms=UNSET if assignment.deadline_ms is None else assignment.deadline_ms,
        ),
    )


def _or_unset(text: str | None) -> str | msgspec.UnsetType:
    return UNSET if text is None else text


def _owned(state: LeaseState) -> messages.Owned:
    attempt_id, epoch = state.attempt_id.hex(), str(state.epoch)
    if not state.owned:
        return messages.Owned(attempt_id=attempt_id, epoch=epoch, owned=False)
    return messages.Owned(
        attempt_id=attempt_id,
        epoch=epoch,
        owned=True,
        state=state.state,
        lease_ms=state.lease_ms,
        cancel_requested=state.cancel_requested,
    )


def _renewal(state: LeaseState) -> messages.Renewal:
    attempt_id, epoch = state.attempt_id.hex(), str(state.epoch)
    if not state.owned:
        return messages.Renewal(attempt_id=attempt_id, epoch=epoch, ok=False, code=StaleAttempt.code)
    return messages.Renewal(
        attempt_id=attempt_id,
        epoch=epoch,
        ok=True,
        lease_ms=state.lease_ms,
        cancel_requested=state.cancel_requested,
    )
