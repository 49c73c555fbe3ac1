"""`/openapi.json`, generated from the routing table and the same types that parse and render."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

import orbit
from orbit.api.route import Route
from orbit.api.shapes.fields import Answer
from orbit.domain import limits

_REF: Final = "#/components/schemas/{name}"
_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_NUMBER: Final = {"type": "integer", "minimum": 1}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "the command's identity: the same key and content repeat the first answer",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.IDEMPOTENCY_KEY_MAX_BYTES,
        "pattern": "^[!-~]+$",
    },
}
_ALWAYS: Final = (400, 401, 403, 500, 503)
_WITH_ADVICE: Final = frozenset({429, 503})


class ErrorBody(Answer, frozen=True, kw_only=True):
    """`details.field` names the field at fault where there is one."""

    code: str
    message: str
    details: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class Failed(Answer, frozen=True, kw_only=True):
    request_id: str
    error: ErrorBody


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document; `x-orbit-limits` holds every bound that a client must know."""
    table = tuple(routes)
    types = _types(table)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Orbit",
            "version": orbit.__version__,
            "description": "Durable tasks. Success: request_id and data; failure: request_id and error.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
        },
        "x-orbit-limits": limits.told(),
    }


def _types(routes: tuple[Route, ...]) -> list[Any]:
    found: dict[Any, None] = {Failed: None}
    for route in routes:
        found.update(dict.fromkeys(route.answers.values()))
        if route.body is not None:
            found[route.body] = None
    return list(found)


def _operation(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route, by_type),
    }
    if route.action:
        operation["description"] = f"Needs the action {route.action}."
    else:
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {"application/json": {"schema": by_type[route.body]}},
        }
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": _NUMBER if name == "n" else _ID}
        for name in route.path_parameters
    ]
    query = [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "description": parameter.description,
            "schema": parameter.schema,
        }
        for parameter in route.query
    ]
    return [*path, *query, *([_KEY] if route.is_keyed else [])]


def _responses(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    responses = {
        str(status): _response(status, by_type[answer] if route.is_plain else _wrapped(by_type[answer]))
        for status, answer in route.answers.items()
    }
    statuses = route.refusals if route.is_plain else sorted({*_ALWAYS, *route.refusals})
    for status in statuses:
        responses[str(status)] = _response(status, by_type[Failed])
    return responses


def _response(status: int, schema: Any) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": schema}},
    }
    if status in _WITH_ADVICE:
        advice = {"description": "whole seconds to wait", "schema": {"type": "integer", "minimum": 1}}
        response["headers"] = {"Retry-After": advice}
    return response


def _wrapped(schema: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["request_id", "data"],
        "properties": {"request_id": _ID, "data": schema},
    }
