"""Endpoints of attempts."""

from __future__ import annotations

from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, success
from orbit.api.exchange import Exchange
from orbit.api.query import page_limit, parse_query
from orbit.api.route import Route
from orbit.api.routes.lists import CURSOR, LIMIT, receive_query
from orbit.api.services import Services
from orbit.api.shapes.attempts import Attempt, AttemptList, render_attempt, render_list
from orbit.domain.errors import NotFound
from orbit.domain.limits import UINT64_MAX
from orbit.domain.permissions import TASKS_READ
from orbit.pulse.queries import ListAttempts, read_attempt, read_attempts


async def list_attempts(services: Services, exchange: Exchange) -> Reply:
    token, query = await receive_query(services, exchange, _parse_list)
    page = await services.read(lambda tx: read_attempts(tx, token, query))
    return success(exchange.request_id, 200, render_list(page))


async def get_attempt(services: Services, exchange: Exchange) -> Reply:
    token = bearer_token(exchange)
    task_id, number = bytes.fromhex(exchange.params["task_id"]), int(exchange.params["n"])
    if number > UINT64_MAX:
        await services.door.confirm(token)
        raise NotFound("attempt not found")
    view = await services.read(lambda tx: read_attempt(tx, token, task_id, number))
    return success(exchange.request_id, 200, render_attempt(view))


def _parse_list(exchange: Exchange) -> ListAttempts:
    parameters = parse_query(exchange.query, {"limit", "cursor"})
    return ListAttempts(
        task_id=bytes.fromhex(exchange.params["task_id"]),
        limit=page_limit(parameters),
        cursor=parameters.get("cursor"),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/tasks/{task_id}/attempts",
        endpoint=list_attempts,
        summary="List a task's attempts, oldest first, without outputs",
        action=TASKS_READ,
        answers={200: AttemptList},
        query=(LIMIT, CURSOR),
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{task_id}/attempts/{n}",
        endpoint=get_attempt,
        summary="Read an attempt with its output and late evidence",
        action=TASKS_READ,
        answers={200: Attempt},
        refusals=(404,),
    ),
)
