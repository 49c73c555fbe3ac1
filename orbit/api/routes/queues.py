"""Endpoints of queues."""

from __future__ import annotations

from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, success
from orbit.api.exchange import Exchange
from orbit.api.query import page_limit, parse_query
from orbit.api.route import Parameter, Route
from orbit.api.routes.commands import receive_command
from orbit.api.routes.lists import CURSOR, LIMIT, receive_query
from orbit.api.services import Services
from orbit.api.shapes.queues import (
    ConfigureQueueBody,
    CreateQueueBody,
    Queue,
    QueueList,
    QueueWritten,
    parse_configure,
    parse_create,
    render_list,
    render_queue,
    render_written,
)
from orbit.domain.keys import check_name
from orbit.domain.permissions import QUEUES_MANAGE, QUEUES_READ
from orbit.pulse.commands import QueueAnswer
from orbit.pulse.queries import ListQueues, read_queue, read_queues
from orbit.runtime.hints import HintKind


async def create_queue(services: Services, exchange: Exchange) -> Reply:
    application_id, command = await receive_command(services, exchange, parse_create)
    answer: QueueAnswer = await services.queue_creations.run(application_id, command)
    return success(exchange.request_id, 200 if answer.deduplicated else 201, render_written(answer))


async def configure_queue(services: Services, exchange: Exchange) -> Reply:
    queue_id = bytes.fromhex(exchange.params["queue_id"])
    application_id, command = await receive_command(
        services, exchange, lambda token, key, body: parse_configure(token, key, queue_id, body)
    )
    answer: QueueAnswer = await services.queue_configurations.run(application_id, command)
    if not answer.deduplicated:
        services.hints.send(HintKind.RELEASE, application_id)
    return success(exchange.request_id, 200, render_written(answer))


async def get_queue(services: Services, exchange: Exchange) -> Reply:
    token, queue_id = bearer_token(exchange), bytes.fromhex(exchange.params["queue_id"])
    view = await services.read(lambda tx: read_queue(tx, token, queue_id))
    return success(exchange.request_id, 200, render_queue(view))


async def list_queues(services: Services, exchange: Exchange) -> Reply:
    token, query = await receive_query(services, exchange, _parse_list)
    page = await services.read(lambda tx: read_queues(tx, token, query))
    return success(exchange.request_id, 200, render_list(page))


def _parse_list(exchange: Exchange) -> ListQueues:
    parameters = parse_query(exchange.query, {"name", "limit", "cursor"})
    return ListQueues(
        limit=page_limit(parameters),
        name=check_name(parameters["name"], "name") if "name" in parameters else None,
        cursor=parameters.get("cursor"),
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/queues",
        endpoint=create_queue,
        summary="Create a queue",
        action=f"{QUEUES_MANAGE}, with a scope over all queues",
        answers={201: QueueWritten, 200: QueueWritten},
        body=CreateQueueBody,
        is_keyed=True,
        refusals=(409,),
    ),
    Route(
        method="GET",
        path="/v1/queues",
        endpoint=list_queues,
        summary="List queues",
        action=QUEUES_READ,
        answers={200: QueueList},
        query=(Parameter(name="name", description="exact name"), LIMIT, CURSOR),
    ),
    Route(
        method="GET",
        path="/v1/queues/{queue_id}",
        endpoint=get_queue,
        summary="Read a queue",
        action=QUEUES_READ,
        answers={200: Queue},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue_id}:configure",
        endpoint=configure_queue,
        summary="Replace a queue's control values",
        action=QUEUES_MANAGE,
        answers={200: QueueWritten},
        body=ConfigureQueueBody,
        is_keyed=True,
        refusals=(404, 409),
    ),
)
