"""Lists of tasks and attempts: filters, order, cursors, and strict parameters."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote, urlencode

import pytest

from orbit.domain.states import Outcome
from orbit.store.session import Session
from tests.support.api import Api
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant, make_credential


async def walk(api: Api, tenant: Tenant, **filters: str) -> list[str]:
    """Return the ids of all pages of two."""
    seen: list[str] = []
    query = {"queue_id": tenant.queue_id.hex(), "limit": "2", **filters}
    while True:
        page = await api.get(f"/v1/tasks?{urlencode(query, quote_via=quote)}", tenant)
        assert page.status == 200, page.body
        seen += [task["id"] for task in page.data["tasks"]]
        if "next_cursor" not in page.data:
            return seen
        query["cursor"] = page.data["next_cursor"]


async def test_newest_first_and_every_task_once(api: Api, tenant: Tenant) -> None:
    """Pages follow one another although tasks of one group share their creation time."""
    items = [{**item(tenant), "idempotency_key": f"k{n}"} for n in range(7)]
    batch = await api.post("/v1/tasks:batch", tenant, {"items": items})
    ids = {answer["task"]["id"] for answer in batch.data["items"]}
    later = (await api.submit(tenant, "later")).data["task"]["id"]
    seen = await walk(api, tenant)
    assert seen[0] == later
    assert (len(seen), set(seen)) == (8, ids | {later})


async def test_filters_by_state_key_and_time(api: Api, tenant: Tenant) -> None:
    """Each filter alone and all together; business keys match by bytes (F36, C34)."""
    keys = ["k", "k ", "K", "e\u0301", "\u00e9", "\U0001f600" * 191]
    ids = {
        key: (await api.submit(tenant, f"s{index}", business_key=key)).data["task"]
        for index, key in enumerate(keys)
    }
    for key in keys:
        assert await walk(api, tenant, business_key=key) == [ids[key]["id"]]
        assert ids[key]["business_key"] == key
    await api.post(f"/v1/tasks/{ids['k']['id']}:cancel", tenant, {}, key="c")
    assert await walk(api, tenant, state="CANCELLED") == [ids["k"]["id"]]
    assert await walk(api, tenant, state="CANCELLED", business_key="K") == []
    assert len(await walk(api, tenant, state="WAITING")) == len(keys) - 1

    third = ids[keys[2]]["created_at"]
    after = (datetime.fromisoformat(third[:-1]) + timedelta(microseconds=1)).isoformat(
        timespec="microseconds"
    ) + "Z"
    assert await walk(api, tenant, created_from=third, created_before=after) == [ids[keys[2]]["id"]]
    assert len(await walk(api, tenant, created_from=third)) == len(keys) - 2
    assert len(await walk(api, tenant, created_before=third)) == 2
    assert await walk(api, tenant, created_from=third, state="WAITING", business_key=keys[2]) == [
        ids[keys[2]]["id"]
    ]


async def test_held_tasks_are_found_by_their_state(api: Api, tenant: Tenant, pulse: Pulse) -> None:
    """LEASED and RUNNING are told apart, in the filter as in the task."""
    ids = [(await api.submit(tenant, f"k{n}")).data["task"]["id"] for n in range(3)]
    worker = pulse.worker()
    running = worker.run_one().task_id.hex()
    leased = worker.claim_one().task_id.hex()
    assert await walk(api, tenant, state="RUNNING") == [running]
    assert await walk(api, tenant, state="LEASED") == [leased]
    assert await walk(api, tenant, state="WAITING") == [(set(ids) - {running, leased}).pop()]
    for task, state, used in ((running, "RUNNING", 1), (leased, "LEASED", 0)):
        shown = (await api.get(f"/v1/tasks/{task}", tenant)).data
        assert (shown["state"], shown["attempts_used"], shown["epoch"]) == (state, used, "1")
    listed = (await api.get(f"/v1/tasks?queue_id={tenant.queue_id.hex()}", tenant)).data["tasks"]
    assert {task["id"]: task["state"] for task in listed}[running] == "RUNNING"


async def test_a_cursor_belongs_to_its_list(api: Api, tenant: Tenant, session: Session) -> None:
    """Other filters, another scope, a changed byte: 400 naming the cursor, never a list from its start."""
    for key in "abc":
        await api.submit(tenant, key)
    base = f"/v1/tasks?queue_id={tenant.queue_id.hex()}&limit=1"
    cursor = (await api.get(base, tenant)).data["next_cursor"]
    _, scoped = make_credential(
        session, tenant.application_id, tenant.namespace_id, queue_ids=(tenant.queue_id,)
    )
    flipped = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    assert (await api.get(f"{base}&cursor={cursor}", tenant)).status == 200
    for who, target in (
        (tenant, f"{base}&state=WAITING&cursor={cursor}"),
        (scoped, f"{base}&cursor={cursor}"),
        (tenant, f"{base}&cursor={flipped}"),
        (tenant, f"{base}&cursor="),
        (tenant, f"/v1/queues?cursor={cursor}"),
    ):
        refused = await api.get(target, who)
        assert (refused.status, refused.field) == (400, "cursor"), target


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ("", "queue_id"),
        ("queue_id=x", "queue_id"),
        ("queue_id={queue}&limit=0", "limit"),
        ("queue_id={queue}&limit=101", "limit"),
        ("queue_id={queue}&limit=%2B5", "limit"),
        ("queue_id={queue}&state=waiting", "state"),
        ("queue_id={queue}&state=WAITING&state=FAILED", "state"),
        ("queue_id={queue}&business_key=", "business_key"),
        ("queue_id={queue}&business_key=%ff", "business_key"),
        ("queue_id={queue}&created_from=2026-01-01", "created_from"),
        ("queue_id={queue}&created_after=2026-01-01T00:00:00Z", "created_after"),
        ("queue_id={queue}&State=WAITING", "State"),
    ],
)
async def test_parameters_are_as_strict_as_bodies(
    api: Api, tenant: Tenant, parameters: str, field: str
) -> None:
    """Unknown, repeated and malformed parameters are refused by name."""
    refused = await api.get(f"/v1/tasks?{parameters.format(queue=tenant.queue_id.hex())}", tenant)
    assert (refused.status, refused.code, refused.field) == (400, "INVALID_ARGUMENT", field)


async def test_attempts_tell_what_happened(api: Api, tenant: Tenant, pulse: Pulse) -> None:
    """Each attempt with its worker and end; output by number only; late evidence beside its attempt."""
    retry = {"max_attempts": 2}
    task = (await api.submit(tenant, "t", concurrency_key="door", retry=retry)).data["task"]["id"]
    worker = pulse.worker()
    first = worker.run_one()
    worker.finish(first, Outcome.RETRY, error_code="BUSY", error_message="come back \U0001f600")
    worker.finish(first, Outcome.SUCCEEDED, output=b"1")
    second = worker.run_one()
    output = b'{"total": 1.10}'
    worker.finish(second, Outcome.SUCCEEDED, output=output)

    listed = (await api.get(f"/v1/tasks/{task}/attempts", tenant)).data["attempts"]
    assert [(attempt["n"], attempt["epoch"], attempt["state"]) for attempt in listed] == [
        (1, "1", "RETRYABLE"),
        (2, "2", "SUCCEEDED"),
    ]
    assert listed[0]["error"] == {"code": "BUSY", "message": "come back \U0001f600"}
    assert [item["outcome"] for item in listed[0]["late_evidence"]] == ["SUCCEEDED"]
    assert int(listed[0]["concurrency_token"]) < int(listed[1]["concurrency_token"])
    assert all("output" not in attempt and "worker_id" in attempt for attempt in listed)

    one = await api.get(f"/v1/tasks/{task}/attempts/2", tenant)
    assert b'"output":' + output in one.body
    assert {**listed[1], "output": {"total": 1.1}} == one.data
    detail = await api.get(f"/v1/tasks/{task}", tenant)
    assert b'"output":' + output in detail.body
    assert (detail.data["state"], detail.data["attempts_used"], detail.data["epoch"]) == ("SUCCEEDED", 2, "2")

    page = await api.get(f"/v1/tasks/{task}/attempts?limit=1", tenant)
    rest = await api.get(f"/v1/tasks/{task}/attempts?limit=1&cursor={page.data['next_cursor']}", tenant)
    assert [page.data["attempts"][0]["n"], rest.data["attempts"][0]["n"]] == [1, 2]
    assert "next_cursor" not in rest.data
    for number, status in (("3", 404), ("0", 404), ("x", 404), (str(2**64), 404), (str(2**64 - 1), 404)):
        assert (await api.get(f"/v1/tasks/{task}/attempts/{number}", tenant)).status == status


def item(tenant: Tenant) -> dict[str, object]:
    return {
        "queue_id": tenant.queue_id.hex(),
        "handler": "work",
        "handler_version": "1",
        "payload_version": "1",
        "payload": None,
    }
