"""Endpoints of tasks: submit, cancel, read, list."""

from __future__ import annotations

from datetime import datetime

from orbit.api.caller import bearer_token
from orbit.api.envelope import Reply, success
from orbit.api.exchange import Exchange
from orbit.api.query import page_limit, parse_query
from orbit.api.route import Parameter, Route
from orbit.api.routes.commands import receive_command
from orbit.api.routes.lists import CURSOR, LIMIT, receive_query
from orbit.api.services import Services
from orbit.api.shapes.task_views import (
    Task,
    TaskList,
    TaskWritten,
    render_detail,
    render_list,
    render_written,
)
from orbit.api.shapes.tasks import CancelBody, SubmitBody, parse_cancel, parse_submit
from orbit.domain.errors import InvalidArgument
from orbit.domain.ids import parse_id
from orbit.domain.keys import check_business_key
from orbit.domain.permissions import TASKS_CANCEL, TASKS_READ, TASKS_SUBMIT
from orbit.domain.states import TaskState
from orbit.domain.wire import parse_time
from orbit.pulse.commands import TaskAnswer
from orbit.pulse.queries import ListTasks, read_task, read_tasks
from orbit.runtime.hints import HintKind

_FILTERS = frozenset(
    {"queue_id", "state", "business_key", "created_from", "created_before", "limit", "cursor"}
)


async def submit_task(services: Services, exchange: Exchange) -> Reply:
    application_id, command = await receive_command(services, exchange, parse_submit)
    answer: TaskAnswer = await services.submits.run(application_id, command)
    return success(exchange.request_id, 200 if answer.deduplicated else 201, render_written(answer))


async def cancel_task(services: Services, exchange: Exchange) -> Reply:
    task_id = bytes.fromhex(exchange.params["task_id"])
    application_id, command = await receive_command(
        services, exchange, lambda token, key, body: parse_cancel(token, key, task_id, body)
    )
    answer: TaskAnswer = await services.cancels.run(application_id, command)
    if answer.intent:
        services.hints.send(HintKind.CANCEL, application_id)
    elif not answer.deduplicated:
        services.hints.send(HintKind.RELEASE, application_id)
    return success(exchange.request_id, 200, render_written(answer))


async def get_task(services: Services, exchange: Exchange) -> Reply:
    token, task_id = bearer_token(exchange), bytes.fromhex(exchange.params["task_id"])
    detail = await services.read(lambda tx: read_task(tx, token, task_id))
    return success(exchange.request_id, 200, render_detail(detail))


async def list_tasks(services: Services, exchange: Exchange) -> Reply:
    token, query = await receive_query(services, exchange, _parse_list)
    page = await services.read(lambda tx: read_tasks(tx, token, query))
    return success(exchange.request_id, 200, render_list(page))


def _parse_list(exchange: Exchange) -> ListTasks:
    parameters = parse_query(exchange.query, _FILTERS)
    if "queue_id" not in parameters:
        raise InvalidArgument("is required", field="queue_id")
    return ListTasks(
        queue_id=parse_id(parameters["queue_id"], "queue_id"),
        limit=page_limit(parameters),
        state=_parse_state(parameters["state"]) if "state" in parameters else None,
        business_key=_parse_business_key(parameters["business_key"])
        if "business_key" in parameters
        else None,
        created_from=_parse_time(parameters, "created_from"),
        created_before=_parse_time(parameters, "created_before"),
        cursor=parameters.get("cursor"),
    )


def _parse_state(text: str) -> TaskState:
    if text not in set(TaskState):
        raise InvalidArgument(f"must be one of {', '.join(TaskState)}", field="state")
    return TaskState(text)


def _parse_business_key(text: str) -> str:
    key = check_business_key(text)
    if key is None:
        raise InvalidArgument("must not be empty", field="business_key")
    return key


def _parse_time(parameters: dict[str, str], name: str) -> datetime | None:
    return parse_time(parameters[name], name) if name in parameters else None


_TIME = {"type": "string", "format": "date-time"}

ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks",
        endpoint=submit_task,
        summary="Submit a task",
        action=TASKS_SUBMIT,
        answers={201: TaskWritten, 200: TaskWritten},
        body=SubmitBody,
        is_keyed=True,
        is_hot=True,
        refusals=(404, 409, 413, 429),
    ),
    Route(
        method="GET",
        path="/v1/tasks",
        endpoint=list_tasks,
        summary="List a queue's tasks, newest first",
        action=TASKS_READ,
        answers={200: TaskList},
        query=(
            Parameter(name="queue_id", description="the queue", required=True),
            Parameter(
                name="state", description="exact state", schema={"type": "string", "enum": list(TaskState)}
            ),
            Parameter(name="business_key", description="exact business key; white space is significant"),
            Parameter(name="created_from", description="inclusive", schema=_TIME),
            Parameter(name="created_before", description="exclusive", schema=_TIME),
            LIMIT,
            CURSOR,
        ),
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{task_id}",
        endpoint=get_task,
        summary="Read a task with payload and output",
        action=TASKS_READ,
        answers={200: Task},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/tasks/{task_id}:cancel",
        endpoint=cancel_task,
        summary="Cancel a task, or ask a running one to stop",
        action=TASKS_CANCEL,
        answers={200: TaskWritten},
        body=CancelBody,
        is_body_optional=True,
        is_keyed=True,
        refusals=(404, 409),
    ),
)
