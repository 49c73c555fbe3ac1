"""The endpoint of submit batches."""

from __future__ import annotations

from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, success
from orbit.api.exchange import Exchange
from orbit.api.route import Route
from orbit.api.services import Services
from orbit.api.shapes.batches import BatchAnswer, BatchBody, parse_batch, render_batch
from orbit.domain.errors import (
    InvariantViolation,
    OrbitError,
    PermissionDenied,
    RequestError,
    Unauthenticated,
)
from orbit.domain.permissions import TASKS_SUBMIT
from orbit.pulse.commands import SubmitTask, TaskAnswer


async def submit_batch(services: Services, exchange: Exchange) -> Reply:
    token = bearer_token(exchange)
    application_id = await services.door.application_of(token)
    try:
        parsed = parse_batch(token, await exchange.body.read())
    except RequestError:
        await services.door.confirm(token)
        raise
    commands = [item for item in parsed if isinstance(item, SubmitTask)]
    if not commands:
        await services.door.confirm(token)
    answers = await services.submits.run_many(application_id, commands) if commands else []
    outcomes = _in_order(parsed, answers)
    _refuse_whole(outcomes)
    return success(exchange.request_id, 200, render_batch(outcomes))


def _in_order(
    parsed: list[SubmitTask | OrbitError], answers: list[TaskAnswer | OrbitError]
) -> list[TaskAnswer | OrbitError]:
    remaining = iter(answers)
    return [item if isinstance(item, OrbitError) else next(remaining) for item in parsed]


def _refuse_whole(outcomes: list[TaskAnswer | OrbitError]) -> None:
    """Raise what refuses the caller rather than the items: all of them share one credential."""
    for outcome in outcomes:
        if isinstance(outcome, Unauthenticated):
            raise outcome
    if all(isinstance(outcome, PermissionDenied | InvariantViolation) for outcome in outcomes):
        first = outcomes[0]
        assert isinstance(first, OrbitError)
        raise first


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks:batch",
        endpoint=submit_batch,
        summary="Submit up to 32 tasks, each judged alone under its own idempotency key",
        action=TASKS_SUBMIT,
        answers={200: BatchAnswer},
        body=BatchBody,
        is_hot=True,
        refusals=(413,),
    ),
)
