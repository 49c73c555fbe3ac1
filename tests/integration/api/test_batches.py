"""Batches: every item is a submit of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit.domain.ids import new_id
from orbit.domain.permissions import TASKS_READ
from orbit.store.session import Session
from tests.support.api import Answer, Api, submit_body
from tests.support.tenants import QueueLimits, Tenant, TenantMaker, make_credential


def item(tenant: Tenant, key: str, **fields: Any) -> dict[str, Any]:
    return {**submit_body(tenant, **fields), "idempotency_key": key}


async def send(api: Api, who: Tenant | str, *items: Any) -> Answer:
    return await api.post("/v1/tasks:batch", who, {"items": list(items)})


def outcomes(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [entry["outcome"] for entry in answer.data["items"]]


async def test_each_item_is_judged_alone(api: Api, tenant: Tenant) -> None:
    """Accepted, repeated, conflicting, unknown queue, bad field: in the order of the request, none disturbs another."""
    single = await api.submit(tenant, "old")
    answer = await send(
        api,
        tenant,
        item(tenant, "new"),
        item(tenant, "old"),
        item(tenant, "old2", queue_id=new_id().hex()),
        item(tenant, "bad", priority=10),
        item(tenant, "unknown", colour="red"),
        item(tenant, "late", start_deadline_at="2020-01-01T00:00:00.000000Z"),
        item(tenant, "last"),
    )
    assert outcomes(answer) == ["ACCEPTED", "DUPLICATE", *["REFUSED"] * 4, "ACCEPTED"]
    items = answer.data["items"]
    assert items[1]["task"] == single.data["task"]
    assert [entry["error"]["code"] for entry in items[2:6]] == ["NOT_FOUND", *["INVALID_ARGUMENT"] * 3]
    fields = [entry["error"]["details"]["field"] for entry in items[3:6]]
    assert fields == ["priority", "colour", "start_deadline_at"]


async def test_single_and_batch_replay_each_other(api: Api, tenant: Tenant) -> None:
    """One identity, however it is sent; other content under it is a conflict either way."""
    batch = await send(api, tenant, item(tenant, "a", payload=[1.10]))
    single = await api.submit(tenant, "a", payload=[1.10])
    assert (single.status, single.data["task"]) == (200, batch.data["items"][0]["task"])
    conflict = await send(api, tenant, item(tenant, "a", payload=[2]))
    assert conflict.data["items"][0]["error"]["code"] == "IDEMPOTENCY_CONFLICT"


@pytest.mark.parametrize("fault", [{}, {"priority": 10}, {"colour": "red"}, {"handler": ""}])
async def test_a_key_twice_refuses_the_batch(api: Api, tenant: Tenant, fault: dict[str, Any]) -> None:
    """400, and nothing of the batch is stored; also when one of the two items has another fault."""
    for items in (
        [item(tenant, "a"), item(tenant, "b"), item(tenant, "a", **fault)],
        [item(tenant, "a", **fault), item(tenant, "b"), item(tenant, "a")],
    ):
        refused = await send(api, tenant, *items)
        assert (refused.status, refused.field) == (400, "items[2].idempotency_key")
    assert (await api.submit(tenant, "a")).status == 201


async def test_the_number_of_items_is_bounded(api: Api, tenant: Tenant) -> None:
    """1 to 32."""
    assert (await send(api, tenant)).field == "items"
    assert (await send(api, tenant, *(item(tenant, f"k{n}") for n in range(33)))).field == "items"
    assert outcomes(await send(api, tenant, *(item(tenant, f"k{n}") for n in range(32)))) == ["ACCEPTED"] * 32


async def test_a_full_queue_takes_what_fits(api: Api, tenants: TenantMaker) -> None:
    """The first items get the room that is left; the others may come again under their keys."""
    tenant = tenants(limits=QueueLimits(max_unfinished_tasks=3))
    answer = await send(api, tenant, *(item(tenant, f"k{n}") for n in range(5)))
    assert outcomes(answer) == ["ACCEPTED"] * 3 + ["REFUSED"] * 2
    assert {entry["error"]["code"] for entry in answer.data["items"][3:]} == {"QUEUE_FULL"}
    queue = await api.get(f"/v1/queues/{tenant.queue_id.hex()}", tenant)
    assert queue.data["unfinished_tasks"] == "3"


async def test_a_caller_without_the_right_is_refused_as_a_whole(
    api: Api, tenant: Tenant, session: Session
) -> None:
    """403 and 401 concern the credential that all items share."""
    _, reader = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({TASKS_READ})
    )
    assert (await send(api, reader, item(tenant, "a"))).status == 403
    assert (await send(api, "nonsense", item(tenant, "a"))).status == 401
    broken = await api.post("/v1/tasks:batch", tenant, b'{"items": [')
    assert (broken.status, broken.code) == (400, "INVALID_ARGUMENT")


async def test_a_payload_may_be_as_deep_in_a_batch_as_alone(api: Api, tenant: Tenant) -> None:
    """64 levels of its own, whatever stands around it."""
    deep = json.loads("[" * 64 + "]" * 64)
    assert (await api.submit(tenant, "a", payload=deep)).status == 201
    assert outcomes(await send(api, tenant, item(tenant, "a", payload=deep))) == ["DUPLICATE"]
    assert (await api.submit(tenant, "b", payload=[deep])).field == "payload"
    assert (await send(api, tenant, item(tenant, "b", payload=[deep]))).status == 400
