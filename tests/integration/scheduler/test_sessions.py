"""Sessions: registration, refusals before and after the upgrade, take-over, resume, drain."""

from __future__ import annotations

import secrets

import pytest
from trio_websocket import ConnectionRejected

from orbit.domain.ids import id_text
from orbit.scheduler.service import Service
from orbit.store.session import Session
from tests.integration.scheduler.conftest import MakeService
from tests.support.frames import connected, ref, refs
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant, make_credential, make_queue
from tests.support.until import until


async def rejection(service: Service, tenant: Tenant, **options: object) -> ConnectionRejected:
    """Connect in a way that must be refused; return the refusal."""
    with pytest.RaisesGroup(ConnectionRejected) as caught:
        async with connected(service.url, tenant, **options):  # type: ignore[arg-type]
            pass
    refusal = caught.value.exceptions[0]
    assert isinstance(refusal, ConnectionRejected)
    return refusal


@pytest.mark.parametrize(
    "token", ["nonsense", "orbit_" + "0" * 32 + "_" + "a" * 43], ids=["malformed", "unknown"]
)
async def test_an_unknown_token_is_refused_before_the_upgrade(
    service: Service, tenant: Tenant, token: str
) -> None:
    """401 with the failure envelope, no WebSocket."""
    refused = await rejection(service, tenant, token=token)
    assert refused.status_code == 401
    assert refused.body is not None
    assert b"UNAUTHENTICATED" in refused.body


async def test_connecting_and_consuming_are_separate_permissions(
    service: Service, session: Session, tenant: Tenant
) -> None:
    """Without workers:connect 403 before the upgrade; without workers:consume hello is refused."""
    _, submitter = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({"tasks:submit"})
    )
    assert (await rejection(service, tenant, token=submitter)).status_code == 403
    _, watcher = make_credential(
        session, tenant.application_id, tenant.namespace_id, actions=frozenset({"workers:connect"})
    )
    async with connected(service.url, tenant, token=watcher) as worker:
        hello = worker.hello()
        await worker.send(hello)
        answer = await worker.reply(hello["id"])
        assert (answer["type"], answer["code"]) == ("error", "PERMISSION_DENIED")


async def test_path_and_subprotocol_are_checked(service: Service, tenant: Tenant) -> None:
    """Another path is 404, another subprotocol 400."""
    assert (await rejection(service, tenant, subprotocols=["other.v1"])).status_code == 400
    other = type(service)(
        dispatcher=service.dispatcher,
        listener=service.listener,
        prober=service.prober,
        port=service.port,
        url=service.url + "/elsewhere",
    )
    assert (await rejection(other, tenant)).status_code == 404


async def test_queues_outside_of_the_scope_are_not_found_by_id(
    service: Service, session: Session, tenant: Tenant
) -> None:
    """An unknown queue and one out of scope get the same answer, which names it; another hello may follow."""
    hidden = make_queue(session, tenant.application_id, tenant.namespace_id)
    _, scoped = make_credential(
        session, tenant.application_id, tenant.namespace_id, queue_ids=(tenant.queue_id,)
    )
    async with connected(service.url, tenant, token=scoped) as worker:
        for queue_id in (id_text(hidden), secrets.token_hex(16)):
            hello = worker.hello(queues=[id_text(tenant.queue_id), queue_id])
            await worker.send(hello)
            answer = await worker.reply(hello["id"])
            assert answer["code"] == "NOT_FOUND"
            assert queue_id in answer["message"]
        assert (await worker.welcome())["generation"] == 1


async def test_a_worker_keeps_its_registration(service: Service, tenant: Tenant) -> None:
    """The same process with other handlers or without keys is a conflict; the order of queues means nothing."""
    worker_id = secrets.token_hex(16)
    async with connected(service.url, tenant) as first:
        await first.welcome(worker_id=worker_id)
        for change in (
            {"handlers": [{"name": "other", "version": "1"}]},
            {"handlers": [{"name": "work", "version": "1", "eager": True}]},
            {"concurrency_keys": False},
        ):
            async with connected(service.url, tenant) as second:
                hello = second.hello(worker_id=worker_id, **change)
                await second.send(hello)
                assert (await second.reply(hello["id"]))["code"] == "STATE_CONFLICT"
        assert (await first.ask("renew", attempts=[]))["type"] == "renewed"


async def test_a_second_socket_takes_the_place_of_the_first(
    make_service: MakeService, tenant: Tenant, pulse: Pulse
) -> None:
    """F18, on another dispatcher too: the newer session wins, the older is STALE_ATTEMPT and closed as SUPERSEDED."""
    pulse.submit()
    worker_id = secrets.token_hex(16)
    async with make_service() as one, make_service() as two, connected(one.url, tenant) as first:
        await first.welcome(worker_id=worker_id)
        assignment = await first.next("task.assign")
        assert (await first.start(assignment))["type"] == "started"
        async with connected(two.url, tenant) as second:
            assert (await second.welcome(worker_id=worker_id))["generation"] == 2
            stale = await first.say("renew", attempts=[ref(assignment)])
            ending = await first.closing(2.0)
            assert (ending.code, ending.reason) == (1008, "SUPERSEDED")
            answers = [message for message in first.inbox if message.get("reply_to") == stale]
            assert [answer["attempts"][0]["ok"] for answer in answers] in ([], [False])
            resumed = await second.ask("resume", attempts=[ref(assignment)])
            assert resumed["attempts"][0]["state"] == "RUNNING"
            assert (await second.finish(assignment))["disposition"] == "APPLIED"


async def test_nothing_is_assigned_before_resume(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """After generation 1: first resume, then undelivered attempts again with the same epoch, then new ones."""
    worker_id = secrets.token_hex(16)
    pulse.submit_many(2)
    async with connected(service.url, tenant) as first:
        await first.welcome(worker_id=worker_id, capacity=2)
        kept, unheard = await first.many("task.assign", 2)
        await first.start(kept)
    third = pulse.submit()
    async with connected(service.url, tenant) as second:
        assert (await second.welcome(worker_id=worker_id, capacity=3))["generation"] == 2
        await second.none("task.assign", 0.5)
        resumed = await second.ask("resume", attempts=[ref(kept), {"attempt_id": "0" * 32, "epoch": "1"}])
        assert [answer["owned"] for answer in resumed["attempts"]] == [True, False]
        again, fresh = sorted(
            await second.many("task.assign", 2), key=lambda message: message["task"]["id"] == id_text(third)
        )
        assert ref(again) == ref(unheard)
        assert again["task"]["payload"] == {}
        assert fresh["task"]["id"] == id_text(third)
        for assignment in (again, fresh):
            await second.start(assignment)
        for assignment in (kept, again, fresh):
            assert (await second.finish(assignment))["disposition"] == "APPLIED"


async def test_a_result_lost_on_the_way_is_repeated_after_a_reconnect(
    service: Service, tenant: Tenant, pulse: Pulse
) -> None:
    """F16, F17, C16: the reply never arrived; the same id in the next session gets the stored answer, once applied."""
    task_id = pulse.submit()
    worker_id = secrets.token_hex(16)
    async with connected(service.url, tenant) as first:
        await first.welcome(worker_id=worker_id)
        assignment = await first.next("task.assign")
        await first.start(assignment)
        result = {"type": "result", "id": "result-1", **ref(assignment), "outcome": "SUCCEEDED", "output": 1}
        await first.send(result)
        await until(lambda: pulse.task(task_id).state == "SUCCEEDED")
    async with connected(service.url, tenant) as second:
        await second.welcome(worker_id=worker_id)
        await second.ask("resume", attempts=refs([assignment]))
        await second.send(result)
        answer = await second.reply("result-1")
        assert (answer["disposition"], answer["task_state"]) == ("DUPLICATE", "SUCCEEDED")
    assert pulse.events(task_id) == ["SUCCEEDED"]


async def test_drain_ends_once_nothing_is_in_flight(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """No assignment after drain; `drained` comes after the last result, and not before."""
    pulse.submit()
    async with connected(service.url, tenant) as worker:
        await worker.welcome(capacity=5)
        assignment = await worker.next("task.assign")
        await worker.start(assignment)
        drain = await worker.say("drain")
        pulse.submit()
        await worker.none("task.assign", 0.4)
        assert [message for message in worker.inbox if message["type"] == "drained"] == []
        await worker.finish(assignment)
        assert (await worker.next("drained"))["reply_to"] == drain


async def test_a_revoked_credential_ends_its_sessions(
    service: Service, session: Session, tenant: Tenant
) -> None:
    """Closed with 1008 about a second after the revocation was committed."""
    token, text = make_credential(session, tenant.application_id, tenant.namespace_id)
    async with connected(service.url, tenant, token=text) as worker:
        await worker.welcome()
        session.run(
            lambda tx: tx.execute(
                "UPDATE credentials SET state = 'REVOKED' WHERE credential_id = %s", (token.credential_id,)
            )
        )
        ending = await worker.closing(4.0)
        assert ending.code == 1008
        assert "revoked" in (ending.reason or "")


async def test_a_closed_session_is_stored_as_ended(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """The registration stays, the session has its end."""
    async with connected(service.url, tenant) as worker:
        welcome = await worker.welcome(name="A worker", sdk="frames/1")
    session_id = bytes.fromhex(welcome["session_id"])
    await until(lambda: pulse.row("worker_sessions", session_id=session_id).ended_at is not None)
    assert pulse.row("worker_sessions", session_id=session_id).name == "A worker"
