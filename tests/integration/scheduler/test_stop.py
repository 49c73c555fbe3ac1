"""The end of a dispatcher: answers what arrived, sends workers elsewhere, leaves no trace, exit 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import trio

from orbit.domain.ids import id_text
from orbit.pulse.dispatchers import SILENT_SECONDS, prune_dispatchers
from orbit.scheduler.service import Service
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.integration.scheduler.conftest import MakeService
from tests.support.frames import FrameWorker, connected, refs
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant


async def test_workers_are_sent_elsewhere(make_service: MakeService, tenant: Tenant, pulse: Pulse) -> None:
    """1001 after the last answers; the worker goes on with the other dispatcher, nothing runs twice."""
    pulse.submit_many(10)
    worker_id = "0123456789abcdef" * 2
    async with make_service() as other:
        async with trio.open_nursery() as nursery:
            async with make_service() as stopping:
                worker = await nursery.start(hold, stopping, tenant, worker_id)
                held = await worker.many("task.assign", 5)
                starts = [await worker.say("start", **one) for one in refs(held)]
            for start in starts:
                assert (await worker.reply(start))["type"] == "started"
            ending = await worker.closing()
            assert (ending.code, ending.reason) == (1001, "shutting down")
            assert pulse.rows("dispatchers", dispatcher_id=stopping.dispatcher.dispatcher_id) == []
            nursery.cancel_scope.cancel()
        async with connected(other.url, tenant) as again:
            assert (await again.welcome(worker_id=worker_id, capacity=5))["generation"] == 2
            resumed = await again.ask("resume", attempts=refs(held))
            assert [answer["state"] for answer in resumed["attempts"]] == ["RUNNING"] * 5
            for assignment in held:
                assert (await again.finish(assignment))["disposition"] == "APPLIED"
            for _ in range(5):
                await again.work_one()
    assert sorted(row.epoch for row in pulse.rows("attempts", namespace_id=tenant.namespace_id)) == [1] * 10


async def hold(
    service: Service, tenant: Tenant, worker_id: str, *, task_status: trio.TaskStatus[FrameWorker]
) -> None:
    """Keep a worker's connection open beyond the block that made it."""
    async with connected(service.url, tenant) as worker:
        await worker.welcome(worker_id=worker_id, capacity=5)
        task_status.started(worker)
        await trio.sleep_forever()


async def test_sigterm_ends_the_process_with_exit_0(dsn: Dsn, tenant: Tenant, pulse: Pulse) -> None:
    """A real process with a connected worker stops in time and unregisters."""
    environment = {**os.environ, "ORBIT_MYSQL_DSN": dsn.text(), "ORBIT_DISPATCH_ADDR": "127.0.0.1:0"}
    command = [sys.executable, "-c", "from orbit.scheduler.main import main; main()"]
    before = {row.dispatcher_id for row in pulse.rows("dispatchers")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - for its pid
    try:
        with trio.fail_after(30):
            while not (
                fresh := [row for row in pulse.rows("dispatchers") if row.dispatcher_id not in before]
            ):
                assert process.poll() is None
                await trio.sleep(0.1)
        async with connected(fresh[0].url, tenant) as worker:
            await worker.welcome()
            process.send_signal(signal.SIGTERM)
            assert (await worker.closing()).code == 1001
        assert await trio.to_thread.run_sync(lambda: process.wait(timeout=20)) == 0
    finally:
        process.kill()
        process.wait()
    assert pulse.rows("dispatchers", dispatcher_id=fresh[0].dispatcher_id) == []


async def test_a_dispatcher_shows_itself(service: Service, tenant: Tenant, pulse: Pulse) -> None:
    """Workers find it by its URL, others by its hint address; long-silent rows go away."""
    row = pulse.row("dispatchers", dispatcher_id=service.dispatcher.dispatcher_id)
    assert row.url == service.url
    assert row.hint_address.startswith("127.0.0.1:")


def test_long_silent_dispatchers_are_forgotten(session: Session) -> None:
    """An hour after their last heartbeat; younger ones stay."""
    ids = [os.urandom(16), os.urandom(16)]
    ages = zip(ids, (SILENT_SECONDS + 60, SILENT_SECONDS - 60), strict=True)

    def insert(tx: Tx) -> None:
        for dispatcher_id, age in ages:
            tx.execute(
                "INSERT INTO dispatchers (dispatcher_id, url, sessions, started_at, heartbeat_at) VALUES"
                " (%s, 'ws://x', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s SECOND)",
                (dispatcher_id, age),
            )

    session.run(insert)
    assert session.run(prune_dispatchers) >= 1
    left = session.run(
        lambda tx: tx.rows("SELECT dispatcher_id FROM dispatchers WHERE dispatcher_id IN %s", (ids,))
    )
    assert [id_text(row[0]) for row in left] == [id_text(ids[1])]
    session.run(lambda tx: tx.execute("DELETE FROM dispatchers WHERE dispatcher_id = %s", (ids[1],)))
