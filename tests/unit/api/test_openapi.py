"""The description tells every endpoint with the bounds that the parsers enforce."""

from __future__ import annotations

import json

import pytest

from orbit.api.openapi import describe
from orbit.api.routes.table import ROUTES
from orbit.domain import limits
from orbit.domain.strictjson import encode

DOCUMENT = json.loads(encode(describe(ROUTES)))
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_every_route_is_described_once() -> None:
    described = {
        (method.upper(), path) for path, operations in DOCUMENT["paths"].items() for method in operations
    }
    assert described == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)


def test_references_lead_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names
    assert names <= set(SCHEMAS)


@pytest.mark.parametrize(
    ("schema", "field", "bound", "value"),
    [
        ("SubmitBody", "priority", "maximum", limits.PRIORITY_MAX),
        ("SubmitBody", "handler", "maxLength", limits.HANDLER_MAX_CHARS),
        ("SubmitBody", "delay_ms", "maximum", limits.DELAY_MAX_MS),
        ("CreateQueueBody", "max_concurrency", "maximum", limits.QUEUE_CONCURRENCY_MAX),
        ("ConfigureQueueBody", "max_unfinished_tasks", "minimum", 1),
        ("BatchBody", "items", "maxItems", limits.BATCH_MAX_ITEMS),
    ],
)
def test_bounds_are_told(schema: str, field: str, bound: str, value: int) -> None:
    assert SCHEMAS[schema]["properties"][field][bound] == value


def test_bodies_are_closed_and_keys_required() -> None:
    assert SCHEMAS["SubmitBody"]["additionalProperties"] is False
    assert set(SCHEMAS["SubmitBody"]["required"]) == {
        "queue_id",
        "handler",
        "handler_version",
        "payload_version",
        "payload",
    }
    submit = DOCUMENT["paths"]["/v1/tasks"]["post"]
    assert "Idempotency-Key" in [
        parameter["name"] for parameter in submit["parameters"] if parameter["required"]
    ]
    batch = DOCUMENT["paths"]["/v1/tasks:batch"]["post"]
    assert batch["parameters"] == []
    assert {"429", "503"} <= set(submit["responses"])
    assert "Retry-After" in submit["responses"]["429"]["headers"]


def test_the_limits_are_those_of_welcome() -> None:
    assert DOCUMENT["x-orbit-limits"] == limits.told()
