"""F12: a process that is frozen inside a transaction holds its locks for as long as the server allows and no longer,
and commits nothing of it once it goes on."""

from __future__ import annotations

import threading
import time
from typing import Any

from orbit.domain.errors import OrbitError
from orbit.localdb.instance import Instance
from orbit.store.connection import LOCK_WAIT_SECONDS, WAIT_TIMEOUT_SECONDS
from orbit.store.session import Session
from tests.support.commitproxy import CommitProxy
from tests.support.eventually import eventually
from tests.support.lockwait import Background, await_waiter
from tests.support.processes import Process, Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, Reply, submit_body
from tests.support.tenants import Tenant, make_tenant

FREE_SECONDS = WAIT_TIMEOUT_SECONDS + LOCK_WAIT_SECONDS + 3


def freeze_at(way: CommitProxy, process: Process, words: str) -> threading.Event:
    """Freeze the process once, as it sends the first statement with these words; the statement itself goes on."""
    frozen = threading.Event()

    def look(text: str) -> None:
        if words in text and not frozen.is_set():
            process.freeze()
            frozen.set()

    way.before_each(look)
    return frozen


def submit_patiently(tenant: Tenant, session: Session) -> bytes:
    """Submit until the application's lock can be had."""
    pulse = Pulse(session, tenant)
    command = pulse.command(handler="nobody")
    while isinstance(outcome := pulse.submit_each([command])[0], OrbitError):
        assert outcome.code == "UNAVAILABLE"
    return outcome.task.task_id


def test_frozen_inside_a_transaction_f12(site: Site, victim: Instance, home: Tenant, direct: Pulse) -> None:
    """F12: orbit-api is stopped in a submit and orbit-dispatch in a claim; both applications go on after the server's
    wait_timeout; continued, the one submits under its identity and the other finds its claim gone."""
    other = Pulse(direct.session, make_tenant(direct.session))
    site.recover()
    with CommitProxy(victim.dsn()) as api_way, CommitProxy(victim.dsn()) as dispatch_way:
        api, address = site.api(dsn=api_way.dsn)
        dispatcher, url = site.dispatch(dsn=dispatch_way.dsn)
        first_worker = site.worker(other.tenant, url)
        client, replies = RawClient(address, home.token_text, timeout=60), list[Reply]()
        body = submit_body(home.queue_id)
        caller = threading.Thread(
            target=lambda: replies.append(client.ask("POST", "/v1/tasks", body, key="k"))
        )
        # The last reads under the lock: what is written travels with the COMMIT.
        in_submit = freeze_at(api_way, api, "FROM receipts")
        in_claim = freeze_at(dispatch_way, dispatcher, "FORCE INDEX (ix_tasks_claim)")
        task_id = other.submit(concurrency_key="k")
        caller.start()
        assert in_submit.wait(10)
        assert in_claim.wait(10)
        began = time.monotonic()
        blocked = [
            Background(site.dsn, lambda session, tenant=tenant: submit_patiently(tenant, session))  # type: ignore[misc]
            for tenant in (home, other.tenant)
        ]
        for one in blocked:
            await_waiter(victim, one.connection)
        made = [one.result(FREE_SECONDS) for one in blocked]
        assert time.monotonic() - began < FREE_SECONDS
        assert [row.task_id for row in direct.rows("tasks", queue_id=home.queue_id)] == [made[0]]
        assert other.rows("attempts", task_id=task_id) == []
        _, second_url = site.dispatch()
        second_worker = site.worker(other.tenant, second_url)
        eventually(lambda: other.task(task_id).state == "SUCCEEDED")
        api.thaw()
        dispatcher.thaw()
        caller.join(30)
    assert [reply.status for reply in replies] == [201], replies
    assert {row.task_id for row in direct.rows("tasks", queue_id=home.queue_id)} == {
        made[0],
        task_of(replies[0]),
    }
    assert [row.epoch for row in other.rows("attempts", task_id=task_id)] == [1]
    assert [line["pid"] for line in site.executions()] == [second_worker.pid]
    assert first_worker.is_alive
    dispatcher.await_event("ready")
    assert api.is_alive
    assert dispatcher.is_alive


def task_of(reply: Reply) -> bytes:
    data: dict[str, Any] = reply.json["data"]
    return bytes.fromhex(data["task"]["id"])
