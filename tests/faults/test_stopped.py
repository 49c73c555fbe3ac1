"""F49: SIGTERM to each process with slow work in flight: nothing new, what runs is recorded, the end comes in time."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from orbit.localdb.instance import Instance
from tests.support.eventually import eventually
from tests.support.lockwait import await_waiters, holding_application
from tests.support.processes import Process, Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, Reply, submit_body
from tests.support.rows import lapse, set_grace
from tests.support.tenants import Tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)
twice = pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def stop(process: Process, times: int) -> None:
    """SIGTERM so often, each seen before the next."""
    process.ask_to_stop()
    if times > 1:
        process.await_event("stopping")
        process.ask_to_stop()


@twice
def test_api_stops_with_a_submit_in_hand_f49(
    site: Site, victim: Instance, home: Tenant, direct: Pulse, times: int
) -> None:
    """F49: the transaction in hand is finished and, after one signal, answered; nobody else is let in; exit 0."""
    api, address = site.api()
    client, replies = RawClient(address, home.token_text), list[Reply]()

    def submit() -> None:
        try:
            replies.append(client.ask("POST", "/v1/tasks", submit_body(home.queue_id), key="k"))
        except OSError:
            assert times == 2, "one signal leaves nobody without an answer"

    caller = threading.Thread(target=submit)
    with holding_application(site.dsn, home.application_id):
        caller.start()
        await_waiters(victim, 1)
        stop(api, times)
        api.await_event("stopping")
        eventually(lambda: is_refused(client), what="new connections are refused")
        assert api.is_alive
    assert api.ended(20) == 0
    caller.join(10)
    assert [reply.status for reply in replies] == [201] * (2 - times)
    _, address = site.api()
    again = RawClient(address, home.token_text).ask("POST", "/v1/tasks", submit_body(home.queue_id), key="k")
    assert again.json["data"]["deduplicated"] is True, "what was in hand was committed"


def is_refused(client: RawClient) -> bool:
    try:
        client.ask("GET", "/healthz")
    except OSError:
        return True
    return False


@twice
def test_dispatcher_stops_with_a_start_in_hand_f49(
    site: Site, victim: Instance, home: Tenant, direct: Pulse, times: int
) -> None:
    """F49: no claim after the signal; what runs goes on with the next dispatcher as the same attempt; exit 0."""
    dispatcher, url = site.dispatch()
    site.recover()
    site.worker(home, url, capacity=2)
    running = [direct.submit(payload=payload(ms=1_500)) for _ in range(2)]
    eventually(lambda: len(site.executions()) == 2)
    stop(dispatcher, times)
    dispatcher.await_event("stopping")
    waiting = direct.submit()
    assert dispatcher.ended(30) == 0
    assert direct.rows("attempts", task_id=waiting) == []
    site.dispatch(port=int(url.rpartition(":")[2].partition("/")[0]))
    eventually(lambda: direct.usage().unfinished == 0, within=20)
    for task_id in [*running, waiting]:
        assert [(row.epoch, row.state) for row in direct.rows("attempts", task_id=task_id)] == [
            (1, "SUCCEEDED")
        ]
    assert len(site.executions()) == 3


@twice
def test_recover_stops_with_an_expiry_in_hand_f49(
    site: Site, victim: Instance, home: Tenant, direct: Pulse, times: int
) -> None:
    """F49: the transaction in hand is finished, nothing is half released; exit 0."""
    task_id = direct.submit(concurrency_key="k", on_unknown=OnUnknown.RETRY, retry=AGAIN)
    held = direct.worker().run_one()
    site.dispatch()
    recover = site.recover()
    set_grace(direct.session)  # the beats that follow leave it alone
    with holding_application(site.dsn, home.application_id):
        # Only now: were it ended before the hold, the dispatcher's promotion would be the one that waits.
        lapse(direct.session, held.attempt_id)
        await_waiters(victim, 1, within=25)
        stop(recover, times)
        recover.await_event("stopping")
        time.sleep(0.2)  # the loops have been cancelled by now; that it lives on is what is shown
        assert recover.is_alive
    assert recover.ended(20) == 0
    assert direct.attempt(held).state == "UNKNOWN"
    assert (direct.task(task_id).state, direct.key("k").holder_attempt_id) == ("WAITING", None)


@twice
def test_worker_stops_with_a_handler_in_hand_f49(site: Site, home: Tenant, direct: Pulse, times: int) -> None:
    """F49: what runs is finished within the grace period and recorded once, nothing more is begun; exit 0."""
    _, url = site.dispatch()
    site.recover()
    worker = site.worker(home, url, capacity=1)
    running = direct.submit(payload=payload(ms=700))
    eventually(lambda: len(site.executions()) == 1)
    waiting = direct.submit()
    for _ in range(times):
        worker.ask_to_stop()
    assert worker.ended(15) == 0
    assert direct.task(running).state == "SUCCEEDED"
    assert direct.task(waiting).attempts_used == 0
    site.worker(home, url)
    eventually(lambda: direct.task(waiting).state == "SUCCEEDED")
    assert len(site.executions()) == 2
