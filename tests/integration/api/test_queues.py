"""Creating, configuring, reading and listing queues over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from orbit.domain.ids import new_id
from orbit.domain.permissions import QUEUES_MANAGE, QUEUES_READ
from orbit.store.session import Session
from tests.support.api import Answer, Api
from tests.support.tenants import Tenant, TenantMaker, make_credential, make_namespace, make_queue

CREATE = {"name": "images", "max_concurrency": 8, "rate_per_second": 100}


def control(revision: str, **changes: Any) -> dict[str, Any]:
    """Return a complete configuration."""
    return {
        "expected_revision": revision,
        "reason": "less background traffic",
        "paused": False,
        "max_concurrency": 2,
        "rate_per_second": 1,
        "max_unfinished_tasks": 100,
        **changes,
    }


async def create(api: Api, tenant: Tenant, name: str = "images", key: str = "q") -> Answer:
    return await api.post("/v1/queues", tenant, {**CREATE, "name": name}, key=key)


async def test_a_queue_is_created_once(api: Api, tenant: Tenant, session: Session) -> None:
    """201, then 200 with the same snapshot; state event, audit and receipt are there once."""
    first, again = await create(api, tenant), await create(api, tenant)
    assert (first.status, again.status) == (201, 200)
    queue = first.data["queue"]
    assert again.data == {"deduplicated": True, "queue": queue}
    assert queue == {
        "id": queue["id"],
        "namespace_id": tenant.namespace_id.hex(),
        "name": "images",
        "paused": False,
        "max_concurrency": 8,
        "rate_per_second": 100,
        "max_unfinished_tasks": 100_000,
        "unfinished_tasks": "0",
        "revision": "1",
    }
    queue_id = bytes.fromhex(queue["id"])
    for table in ("state_events", "audits"):
        count = session.run(
            lambda tx, table=table: tx.value(
                f"SELECT COUNT(*) FROM {table} WHERE resource_id = %s AND resource_kind = 'queue'",
                (queue_id,),
            )
        )
        assert count == 1, table
    assert (
        session.run(
            lambda tx: tx.value("SELECT LENGTH(body) FROM receipts WHERE resource_id = %s", (queue_id,))
        )
        <= 1_024
    )


async def test_one_name_one_queue_and_one_key_one_content(api: Api, tenant: Tenant) -> None:
    """The same name under another key is STATE_CONFLICT, the same key with other content IDEMPOTENCY_CONFLICT."""
    await create(api, tenant)
    assert (await create(api, tenant, key="other")).code == "STATE_CONFLICT"
    assert (await create(api, tenant, name="films")).code == "IDEMPOTENCY_CONFLICT"
    assert (await create(api, tenant, name="Images", key="case")).status == 201


async def test_names_race_without_a_500(api: Api, tenant: Tenant) -> None:
    """Twenty creations of one name under different keys: one 201, the others STATE_CONFLICT."""
    answers: list[Answer] = []

    async def one(index: int) -> None:
        answers.append(await create(api, tenant, key=f"k{index}"))

    async with trio.open_nursery() as nursery:
        for index in range(20):
            nursery.start_soon(one, index)
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19


async def test_creating_needs_the_action_and_all_queues(api: Api, tenant: Tenant, session: Session) -> None:
    """Both are said as 403."""
    place = (session, tenant.application_id, tenant.namespace_id)
    _, reader = make_credential(*place, actions=frozenset({QUEUES_READ}))
    _, scoped = make_credential(*place, queue_ids=(tenant.queue_id,))
    for who in (reader, scoped):
        assert (await api.post("/v1/queues", who, CREATE, key="q")).code == "PERMISSION_DENIED"


async def test_configuring_replaces_all_controls(api: Api, tenant: Tenant) -> None:
    """The revision rises by one; the key repeats its snapshot; an old revision under a new key is refused."""
    queue_id = (await create(api, tenant)).data["queue"]["id"]
    path = f"/v1/queues/{queue_id}:configure"
    first = await api.post(path, tenant, control("1", paused=True), key="c1")
    assert first.status == 200
    changed = first.data["queue"]
    assert (changed["revision"], changed["paused"], changed["max_unfinished_tasks"]) == ("2", True, 100)
    second = await api.post(path, tenant, control("2"), key="c2")
    assert second.data["queue"]["revision"] == "3"
    replay = await api.post(path, tenant, control("1", paused=True), key="c1")
    assert (replay.status, replay.data) == (200, {"deduplicated": True, "queue": changed})
    assert (await api.post(path, tenant, control("1"), key="c3")).code == "STATE_CONFLICT"
    assert (await api.post(path, tenant, control("1"), key="c1")).code == "IDEMPOTENCY_CONFLICT"
    live = await api.get(f"/v1/queues/{queue_id}", tenant)
    assert live.data == second.data["queue"]


async def test_two_configurations_of_one_revision(api: Api, tenant: Tenant) -> None:
    """Sent together, one wins and the other is told so."""
    queue_id = (await create(api, tenant)).data["queue"]["id"]
    answers: list[Answer] = []

    async def one(key: str) -> None:
        answers.append(await api.post(f"/v1/queues/{queue_id}:configure", tenant, control("1"), key=key))

    async with trio.open_nursery() as nursery:
        for index in range(8):
            nursery.start_soon(one, f"c{index}")
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7


async def test_usage_is_live_and_never_reset(api: Api, tenant: Tenant) -> None:
    """`unfinished_tasks` follows the tasks, not the revision, and survives a configuration."""
    queue_id = tenant.queue_id.hex()
    await api.submit(tenant, "a")
    await api.submit(tenant, "b")
    before = await api.get(f"/v1/queues/{queue_id}", tenant)
    assert (before.data["unfinished_tasks"], before.data["revision"]) == ("2", "1")
    changed = await api.post(f"/v1/queues/{queue_id}:configure", tenant, control("1"), key="c")
    assert (changed.data["queue"]["unfinished_tasks"], changed.data["queue"]["revision"]) == ("2", "2")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"paused": None}, "paused"),
        ({"max_unfinished_tasks": 0}, "max_unfinished_tasks"),
        ({"max_concurrency": 100_001}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"rate_per_second": 1.0}, "rate_per_second"),
        ({"expected_revision": 1}, "expected_revision"),
        ({"expected_revision": "0"}, "expected_revision"),
        ({"expected_revision": "01"}, "expected_revision"),
        ({"reason": " \u3000"}, "reason"),
        ({"reason": "x" * 1_025}, "reason"),
        ({"Paused": True}, "Paused"),
    ],
)
async def test_a_bad_configuration_names_its_field(
    api: Api, tenant: Tenant, changes: dict[str, Any], field: str
) -> None:
    """400 INVALID_ARGUMENT, and the queue stays as it is."""
    path = f"/v1/queues/{tenant.queue_id.hex()}"
    refused = await api.post(f"{path}:configure", tenant, control("1", **changes), key="c")
    assert (refused.status, refused.code, refused.field) == (400, "INVALID_ARGUMENT", field)
    assert (await api.get(path, tenant)).data["revision"] == "1"


@pytest.mark.parametrize(
    "field", ["reason", "paused", "max_concurrency", "rate_per_second", "max_unfinished_tasks"]
)
async def test_every_control_is_required(api: Api, tenant: Tenant, field: str) -> None:
    body = control("1")
    del body[field]
    refused = await api.post(f"/v1/queues/{tenant.queue_id.hex()}:configure", tenant, body, key="c")
    assert (refused.status, refused.field) == (400, field)


async def test_configuring_needs_the_action_and_the_scope(api: Api, tenant: Tenant, session: Session) -> None:
    """403 without the action; 404 outside the scope, the namespace, or for a queue that isn't there."""
    place = (session, tenant.application_id, tenant.namespace_id)
    other = make_queue(*place)
    path = f"/v1/queues/{tenant.queue_id.hex()}:configure"
    _, reader = make_credential(*place, actions=frozenset({QUEUES_READ}))
    _, scoped = make_credential(*place, actions=frozenset({QUEUES_MANAGE}), queue_ids=(other,))
    assert (await api.post(path, reader, control("1"), key="c")).code == "PERMISSION_DENIED"
    assert (await api.post(path, scoped, control("1"), key="c")).code == "NOT_FOUND"
    assert (
        await api.post(f"/v1/queues/{other.hex()}:configure", scoped, control("1"), key="c")
    ).status == 200
    assert (
        await api.post(f"/v1/queues/{new_id().hex()}:configure", tenant, control("1"), key="d")
    ).status == 404


async def test_a_permission_taken_away_stops_the_replay(api: Api, tenant: Tenant, session: Session) -> None:
    """Permissions are checked again on a replay."""
    await create(api, tenant)
    session.run(
        lambda tx: tx.execute(
            "UPDATE credentials SET actions = %s WHERE credential_id = %s",
            (QUEUES_READ, tenant.credential_id),
        )
    )
    assert (await create(api, tenant)).code == "PERMISSION_DENIED"


async def test_queues_are_listed_page_by_page(api: Api, tenant: Tenant, session: Session) -> None:
    """Every queue of the namespace once, none of another's; a cursor of other filters or scope is refused."""
    place = (session, tenant.application_id, tenant.namespace_id)
    mine = {tenant.queue_id.hex(), *(make_queue(*place).hex() for _ in range(6))}
    make_queue(session, tenant.application_id, make_namespace(session, tenant.application_id))
    seen: list[str] = []
    target, pages = "/v1/queues?limit=3", 0
    while target:
        page = await api.get(target, tenant)
        seen += [queue["id"] for queue in page.data["queues"]]
        pages += 1
        cursor = page.data.get("next_cursor")
        target = f"/v1/queues?limit=3&cursor={cursor}" if cursor else ""
    assert (len(seen), set(seen), pages) == (7, mine, 3)

    cursor = (await api.get("/v1/queues?limit=3", tenant)).data["next_cursor"]
    _, scoped = make_credential(*place, queue_ids=(tenant.queue_id,))
    for who, target in (
        (tenant, f"/v1/queues?limit=3&name=images&cursor={cursor}"),
        (scoped, f"/v1/queues?limit=3&cursor={cursor}"),
        (tenant, f"/v1/queues?limit=3&cursor={cursor[:-2]}AA"),
    ):
        refused = await api.get(target, who)
        assert (refused.status, refused.field) == (400, "cursor")


async def test_the_name_filter_is_exact(
    api: Api, tenant: Tenant, session: Session, tenants: TenantMaker
) -> None:
    """One queue or none; case counts; a name outside of the alphabet is 400; scope and namespace hold."""
    await create(api, tenant)
    found = await api.get("/v1/queues?name=images", tenant)
    assert [queue["name"] for queue in found.data["queues"]] == ["images"]
    assert (await api.get("/v1/queues?name=Images", tenant)).data == {"queues": []}
    assert (await api.get("/v1/queues?name=images", tenants())).data == {"queues": []}
    assert (await api.get("/v1/queues?name=images%20", tenant)).field == "name"
    _, scoped = make_credential(
        session, tenant.application_id, tenant.namespace_id, queue_ids=(tenant.queue_id,)
    )
    assert (await api.get("/v1/queues?name=images", scoped)).data == {"queues": []}
    assert [q["id"] for q in (await api.get("/v1/queues", scoped)).data["queues"]] == [tenant.queue_id.hex()]
