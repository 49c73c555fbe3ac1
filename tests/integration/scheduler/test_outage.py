"""The database goes away, or doesn't say whether it committed: workers learn it, keep their sessions, and go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio_websocket import ConnectionRejected

from orbit.store.dsn import Dsn
from tests.integration.scheduler.conftest import MakeService
from tests.support.commitproxy import CommitProxy, Loss, inserts, writes
from tests.support.frames import connected, ref
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant


@pytest.fixture
def proxy(dsn: Dsn) -> Iterator[CommitProxy]:
    """Stands between the dispatcher and its database."""
    with CommitProxy(dsn) as opened:
        yield opened


async def test_commands_are_unavailable_until_the_database_is_back(
    make_service: MakeService, proxy: CommitProxy, tenant: Tenant, pulse: Pulse
) -> None:
    """Every command is answered with a pause; the same id succeeds afterwards; the session is the same."""
    pulse.submit_many(2)
    async with (
        make_service(lease_ms=30_000, dsn=proxy.dsn) as service,
        connected(service.url, tenant) as worker,
    ):
        await worker.welcome(capacity=2)
        one, two = await worker.many("task.assign", 2)
        await worker.start(one)
        await trio.to_thread.run_sync(proxy.refuse)
        start = {"type": "start", "id": "start", **ref(two)}
        result = {"type": "result", "id": "result", **ref(one), "outcome": "SUCCEEDED"}
        await worker.send(start, result)
        renew = await worker.say("renew", attempts=[ref(one)])
        for message_id in ("start", "result", renew):
            answer = await worker.reply(message_id)
            assert (answer["type"], answer["code"]) == ("error", "UNAVAILABLE")
            assert answer["retry_after_ms"] > 0
        with pytest.RaisesGroup(ConnectionRejected) as caught:
            async with connected(service.url, tenant):
                pass
        assert getattr(caught.value.exceptions[0], "status_code", None) == 503
        proxy.accept()
        await worker.send(start, result)
        assert (await worker.reply("start"))["type"] == "started"
        assert (await worker.reply("result"))["disposition"] == "APPLIED"
        assert (await worker.finish(two))["disposition"] == "APPLIED"
        pulse.submit()
        await worker.work_one()


@pytest.mark.slow
@pytest.mark.parametrize("loss", Loss)
async def test_no_lost_commit_loses_or_doubles_a_task(
    make_service: MakeService, proxy: CommitProxy, tenant: Tenant, pulse: Pulse, loss: Loss
) -> None:
    """F5 F6 F7: claim, Start and result each lose their COMMIT or its answer; the worker sees one clean life."""
    async with (
        make_service(lease_ms=30_000, dsn=proxy.dsn) as service,
        connected(service.url, tenant) as worker,
    ):
        await worker.welcome(capacity=1)
        proxy.arm(loss, when=inserts("attempts"))
        task_id = pulse.submit(concurrency_key="k")
        assignment = await worker.next("task.assign")
        await trio.to_thread.run_sync(proxy.await_losses, 1)
        proxy.arm(loss, when=writes("attempts"))
        assert (await worker.start(assignment))["type"] == "started"
        await trio.to_thread.run_sync(proxy.await_losses, 2)
        proxy.arm(loss, when=writes("attempts"))
        recorded = await worker.finish(assignment)
        assert recorded["task_state"] == "SUCCEEDED"
        assert recorded["disposition"] in ("APPLIED", "DUPLICATE")
        await trio.to_thread.run_sync(proxy.await_losses, 3)
        await worker.none("task.assign", 0.3)
    assert [row.epoch for row in pulse.rows("attempts", task_id=task_id)] == [1]
    assert pulse.task(task_id).attempts_used == 1
    assert pulse.events(task_id) == ["SUCCEEDED"]
