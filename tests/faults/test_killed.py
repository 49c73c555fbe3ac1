"""F1, F9, F10, F11, F13, C10: processes that are killed; what was promised is kept, and others go on."""

from __future__ import annotations

import json
import secrets
import threading
from typing import Any

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from tests.support.eventually import eventually
from tests.support.invariants import lapsed_attempts, stuck_tasks
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, submit_body
from tests.support.tcpproxy import Direction, TcpProxy
from tests.support.tenants import Tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)
LEASE_SECONDS = 2


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_api_killed_under_submits_f1(site: Site, home: Tenant, direct: Pulse) -> None:
    """F1 I8: callers repeat their keys; in the end there is one task for each key, and every answer was true."""
    api, address = site.api()
    port = int(address.rpartition(":")[2])
    answers: dict[str, str] = {}
    stop = threading.Event()

    def submit() -> None:
        client = RawClient(address, home.token_text, timeout=5)
        while not stop.is_set():
            key = secrets.token_hex(8)
            reply = client.ask_patiently("POST", "/v1/tasks", submit_body(home.queue_id), key=key)
            assert reply.status in (200, 201), reply.body
            answers[key] = reply.json["data"]["task"]["id"]

    callers = [threading.Thread(target=submit) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(3):
        known = len(answers)
        eventually(lambda known=known: len(answers) > known + 20, within=20)  # type: ignore[misc]
        api.kill()
        api, _ = site.api(port=port)
    stop.set()
    for caller in callers:
        caller.join(30)
    stored = {row.task_id.hex() for row in direct.rows("tasks", queue_id=home.queue_id)}
    assert stored == set(answers.values())
    assert len(set(answers.values())) == len(answers)


def test_dispatcher_killed_between_claim_and_delivery_f9(site: Site, home: Tenant, direct: Pulse) -> None:
    """F9 A04: the assignment is withheld, LEASED is read independently, the node is killed and gone; a new one hands
    the task out only after the lease's own end, as the next epoch, with no attempt used."""
    dispatcher, url = site.dispatch()
    site.recover()
    with TcpProxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        site.worker(home, url.replace(url.rpartition(":")[2].partition("/")[0], str(proxy.port)))
        proxy.black_hole(Direction.DOWN)
        task_id = direct.submit(concurrency_key="k")
        (first,) = eventually(lambda: direct.rows("attempts", task_id=task_id, state="LEASED"))
        assert site.executions() == []
        dispatcher.kill()
        assert not dispatcher.is_alive
    _, second_url = site.dispatch()
    site.worker(home, second_url)
    eventually(lambda: direct.task(task_id).state == "SUCCEEDED", within=20)
    old, new = sorted(direct.rows("attempts", task_id=task_id), key=lambda row: row.epoch)
    assert (old.state, old.epoch, new.epoch) == ("EXPIRED", 1, 2)
    assert new.leased_at >= first.lease_expires_at
    assert new.concurrency_token > old.concurrency_token
    assert direct.task(task_id).attempts_used == 1
    assert len(site.executions()) == 1


def test_everything_killed_and_started_again_f10_f11(site: Site, home: Tenant, direct: Pulse) -> None:
    """F10 F11 C10 I10: all processes die twice with work in flight; new ones finish it within its deadlines."""
    deadlines = {}
    for n in range(64):
        key = f"k{n % 3}" if n % 8 == 0 else None
        task_id = direct.submit(
            payload=payload(ms=300),
            retry=AGAIN,
            on_unknown=OnUnknown.RETRY,
            concurrency_key=key,
            timeout_ms=600_000,
        )
        deadlines[task_id] = direct.task(task_id).deadline_at
    for _ in range(2):
        started = len(site.executions())
        crew = [site.recover(), site.recover()]
        dispatcher, url = site.dispatch()
        crew += [dispatcher, site.worker(home, url), site.worker(home, url)]
        eventually(lambda started=started: len(site.executions()) > started + 2, within=15)  # type: ignore[misc]
        for process in crew:
            process.kill()
    site.recover()
    _, url = site.dispatch()
    site.worker(home, url, capacity=8)
    eventually(lambda: direct.usage().unfinished == 0, within=30, pause=0.1)
    for task_id, deadline in deadlines.items():
        assert (direct.task(task_id).state, direct.task(task_id).deadline_at) == ("SUCCEEDED", deadline)
    run = direct.session.run
    assert run(lambda tx: lapsed_attempts(tx, home.application_id, seconds=LEASE_SECONDS)) == []
    assert run(lambda tx: stuck_tasks(tx, home.application_id, seconds=LEASE_SECONDS)) == []


def test_worker_killed_while_running_f13(site: Site, home: Tenant, direct: Pulse) -> None:
    """F13: what may retry does, under a larger token; what may not needs a review; keys and permits are free again."""
    _, url = site.dispatch()
    site.recover()
    retried = direct.submit(
        payload=payload(ms=1_500), on_unknown=OnUnknown.RETRY, retry=AGAIN, concurrency_key="a"
    )
    reviewed = direct.submit(payload=payload(ms=1_500), concurrency_key="b")
    victim = site.worker(home, url)
    eventually(lambda: len(site.executions()) == 2)
    victim.kill()
    site.worker(home, url)
    eventually(lambda: direct.task(reviewed).state == "NEEDS_REVIEW", within=20)
    eventually(lambda: direct.task(retried).state == "SUCCEEDED", within=20)
    tokens = [line["token"] for line in site.executions() if line["task"] == retried.hex()]
    assert len(tokens) == 2
    assert tokens[0] < tokens[1]
    assert direct.key("b").holder_attempt_id is None
    assert direct.usage().active == 0
