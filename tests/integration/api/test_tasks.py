"""Submitting, reading and cancelling tasks over HTTP."""

from __future__ import annotations

import json

import trio

from orbit.domain.ids import new_id
from orbit.domain.permissions import TASKS_READ, TASKS_SUBMIT
from orbit.store.session import Session
from tests.support.api import Api, bearer, submit_body
from tests.support.tenants import (
    QueueLimits,
    Tenant,
    TenantMaker,
    make_credential,
    make_namespace,
    make_queue,
)

EXACT_NUMBERS = (
    b'{"a": 9007199254740993, "b":1.10,"c":1e-400,  "d":123456789012345678901234567890, "z":[],"e":{}}'
)


async def test_a_task_is_accepted_once_and_answered_again(api: Api, tenant: Tenant) -> None:
    """201 first, 200 with the same snapshot for the same key; the id in the header is the one in the body."""
    first = await api.submit(tenant, "one", priority=3, business_key="order 7")
    again = await api.submit(tenant, "one", priority=3, business_key="order 7")
    assert (first.status, again.status) == (201, 200)
    assert (first.data["deduplicated"], again.data["deduplicated"]) == (False, True)
    assert first.data["task"] == again.data["task"]
    assert first.headers["x-request-id"] == first.json["request_id"] != again.json["request_id"]
    task = first.data["task"]
    assert (task["state"], task["epoch"], task["revision"], task["attempts_used"]) == ("WAITING", "0", "1", 0)
    assert (task["priority"], task["business_key"]) == (3, "order 7")
    assert "payload" not in task


async def test_the_payload_comes_back_byte_for_byte(api: Api, tenant: Tenant) -> None:
    """Numbers of any size, their spelling, field order and white space are the submitter's (C33)."""
    body = json.dumps(submit_body(tenant, payload="@")).encode().replace(b'"@"', EXACT_NUMBERS)
    accepted = await api.post("/v1/tasks", tenant, body, key="exact")
    assert accepted.status == 201
    read = await api.get(f"/v1/tasks/{accepted.data['task']['id']}", tenant)
    assert read.status == 200
    assert b'"payload":' + EXACT_NUMBERS + b"}" in read.body


async def test_other_white_space_in_the_payload_is_other_content(api: Api, tenant: Tenant) -> None:
    """The digest covers the payload's raw bytes."""
    body = json.dumps(submit_body(tenant, payload=[1, 2])).encode()
    assert (await api.post("/v1/tasks", tenant, body, key="ws")).status == 201
    conflict = await api.post("/v1/tasks", tenant, body.replace(b"[1, 2]", b"[1,2]"), key="ws")
    assert (conflict.status, conflict.code) == (409, "IDEMPOTENCY_CONFLICT")


async def test_fifty_at_once_under_one_key_make_one_task(api: Api, tenant: Tenant) -> None:
    """One 201, equal bodies 200, other bodies 409, nothing else (C22, F38)."""
    answers = []

    async def submit(index: int) -> None:
        answers.append((index % 2, await api.submit(tenant, "race", payload=index % 2)))

    async with trio.open_nursery() as nursery:
        for index in range(50):
            nursery.start_soon(submit, index)
    winners = [(kind, answer) for kind, answer in answers if answer.status == 201]
    assert len(winners) == 1
    kind, first = winners[0]
    same = [answer for other, answer in answers if other == kind and answer is not first]
    different = [answer for other, answer in answers if other != kind]
    assert {answer.status for answer in same} == {200}
    assert {answer.data["task"]["id"] for answer in same} == {first.data["task"]["id"]}
    assert {(answer.status, answer.code) for answer in different} == {(409, "IDEMPOTENCY_CONFLICT")}
    listed = await api.get(f"/v1/tasks?queue_id={tenant.queue_id.hex()}", tenant)
    assert len(listed.data["tasks"]) == 1


async def test_refusals_come_in_the_documented_order(
    api: Api, tenants: TenantMaker, session: Session
) -> None:
    """401, body, replay, permission, queue, absolute times, application quota, queue limit: each hides the next."""
    tenant = tenants(max_unfinished=2, limits=QueueLimits(max_unfinished_tasks=1))
    _, reader = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({TASKS_READ})
    )
    first = submit_body(tenant)
    assert (await api.post("/v1/tasks", tenant, first, key="held")).status == 201

    no_queue, past = new_id().hex(), "2020-01-01T00:00:00.000000Z"
    steps = [
        # (who, key, body, status, code)
        ("orbit_" + "0" * 32 + "_" + "A" * 43, "held", {"bad": 1}, 401, "UNAUTHENTICATED"),
        (reader, "held", {"bad": 1}, 400, "INVALID_ARGUMENT"),
        (reader, "held", submit_body(tenant, payload=2), 409, "IDEMPOTENCY_CONFLICT"),
        (reader, "held", first, 403, "PERMISSION_DENIED"),
        (reader, "new", submit_body(tenant, queue_id=no_queue), 403, "PERMISSION_DENIED"),
        (
            tenant.token_text,
            "new",
            submit_body(tenant, queue_id=no_queue, available_at=past),
            404,
            "NOT_FOUND",
        ),
        (tenant.token_text, "new", submit_body(tenant, available_at=past), 400, "INVALID_ARGUMENT"),
        (tenant.token_text, "new", submit_body(tenant), 429, "QUEUE_FULL"),
    ]
    for who, key, body, status, code in steps:
        answer = await api.post("/v1/tasks", who, body, key=key)
        assert (answer.status, answer.code) == (status, code), (key, body)

    other = make_queue(session, tenant.application_id, tenant.namespace_id)
    assert (await api.submit(tenant, "second", queue_id=other.hex())).status == 201
    full = await api.submit(tenant, "new")
    assert (full.status, full.code, full.headers["retry-after"]) == (429, "QUOTA_EXCEEDED", "1")
    replay = await api.post("/v1/tasks", tenant, first, key="held")
    assert (replay.status, replay.data["deduplicated"]) == (200, True)


async def test_a_refused_key_succeeds_once_there_is_room(api: Api, tenants: TenantMaker) -> None:
    """QUEUE_FULL leaves no identity behind and says when to come back."""
    tenant = tenants(limits=QueueLimits(max_unfinished_tasks=1))
    held = await api.submit(tenant, "a")
    full = await api.submit(tenant, "b")
    assert (full.status, full.code, full.headers["retry-after"]) == (429, "QUEUE_FULL", "1")
    cancelled = await api.post(f"/v1/tasks/{held.data['task']['id']}:cancel", tenant, b"", key="c")
    assert cancelled.status == 200
    assert (await api.submit(tenant, "b")).status == 201


async def test_a_past_time_is_replayed_but_not_accepted(api: Api, tenant: Tenant) -> None:
    """Absolute times are judged at first acceptance only."""
    soon = await api.services.database.read(
        lambda tx: tx.value("SELECT UTC_TIMESTAMP(6) + INTERVAL 1 SECOND")
    )
    body = submit_body(tenant, start_deadline_at=soon.isoformat(timespec="microseconds") + "Z")
    assert (await api.post("/v1/tasks", tenant, body, key="t")).status == 201
    await api.services.database.read(lambda tx: tx.value("SELECT SLEEP(1.1)"))
    assert (await api.post("/v1/tasks", tenant, body, key="t")).status == 200
    late = await api.post("/v1/tasks", tenant, body, key="t2")
    assert (late.status, late.field) == (400, "start_deadline_at")


async def test_tasks_of_others_are_not_found(
    api: Api, tenant: Tenant, tenants: TenantMaker, session: Session
) -> None:
    """Another application, another namespace and another queue scope: 404; a missing action: 403."""
    accepted = await api.submit(tenant, "mine")
    task = f"/v1/tasks/{accepted.data['task']['id']}"
    stranger = tenants()
    sibling = make_namespace(session, tenant.application_id)
    _, in_sibling = make_credential(session, tenant.application_id, sibling)
    other_queue = make_queue(session, tenant.application_id, tenant.namespace_id)
    _, scoped = make_credential(session, tenant.application_id, tenant.namespace_id, queue_ids=(other_queue,))
    for who in (stranger, in_sibling, scoped):
        assert (await api.get(task, who)).code == "NOT_FOUND"
        assert (await api.get(f"{task}/attempts", who)).code == "NOT_FOUND"
        assert (await api.post(f"{task}:cancel", who, {}, key="x")).code == "NOT_FOUND"
        assert (await api.post("/v1/tasks", who, submit_body(tenant), key="x")).code == "NOT_FOUND"
        assert (await api.get(f"/v1/tasks?queue_id={tenant.queue_id.hex()}", who)).code == "NOT_FOUND"
    _, submitter = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({TASKS_SUBMIT})
    )
    assert (await api.get(task, submitter)).code == "PERMISSION_DENIED"


async def test_a_revoked_credential_ends_at_once(api: Api, tenant: Tenant, session: Session) -> None:
    """No memory of the API's lets a revoked token in, whatever its body says."""
    assert (await api.submit(tenant, "before")).status == 201
    session.run(
        lambda tx: tx.execute(
            "UPDATE credentials SET state = 'REVOKED' WHERE credential_id = %s", (tenant.credential_id,)
        )
    )
    for body in (submit_body(tenant), {"bad": 1}):
        refused = await api.post("/v1/tasks", tenant, body, key="after")
        assert (refused.status, refused.code) == (401, "UNAUTHENTICATED")
    assert (await api.post("/v1/tasks:batch", tenant, {"items": []})).status == 401
    assert (await api.get(f"/v1/queues/{tenant.queue_id.hex()}", tenant)).status == 401


async def test_cancel_is_idempotent_and_final(api: Api, tenant: Tenant) -> None:
    """A waiting task ends at once; the same key repeats the answer, another finds it ended."""
    task_id = (await api.submit(tenant, "s")).data["task"]["id"]
    first = await api.post(f"/v1/tasks/{task_id}:cancel", tenant, {"reason": "no longer wanted"}, key="c")
    again = await api.post(f"/v1/tasks/{task_id}:cancel", tenant, {"reason": "no longer wanted"}, key="c")
    assert (first.status, first.data["task"]["state"]) == (200, "CANCELLED")
    assert again.data == {"deduplicated": True, "task": first.data["task"]}
    ended = await api.post(f"/v1/tasks/{task_id}:cancel", tenant, {}, key="other")
    assert (ended.status, ended.code) == (409, "STATE_CONFLICT")
    changed = await api.post(f"/v1/tasks/{task_id}:cancel", tenant, {"reason": "else"}, key="c")
    assert changed.code == "IDEMPOTENCY_CONFLICT"
    replayed = await api.submit(tenant, "s")
    assert replayed.data["task"]["state"] == "WAITING"


async def test_a_duplicate_authorization_or_key_header_is_refused(api: Api, tenant: Tenant) -> None:
    """Two values of one header are ambiguous: neither is taken."""
    body = json.dumps(submit_body(tenant)).encode()
    twice = [bearer(tenant), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert (await api.ask("POST", "/v1/tasks", twice, body)).field == "Idempotency-Key"
    assert (await api.ask("POST", "/v1/tasks", [bearer(tenant), bearer(tenant)], body)).status == 401
