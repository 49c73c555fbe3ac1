"""F31, C40: hosts whose clocks are wrong. The database's clock alone decides, so nothing happens but odd log lines."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from typing import Any

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from tests.support.eventually import eventually
from tests.support.processes import Process, Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, submit_body
from tests.support.rows import database_now, set_columns
from tests.support.tenants import Tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)
DAY = 86_400.0


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def ahead(process: Process) -> float:
    """How many seconds a process's clock is ahead, by what it logs."""
    line = process.await_event("ready")
    return datetime.fromisoformat(line["at"]).timestamp() - time.time()


def test_hosts_disagree_about_the_time_f31_c40(site: Site, home: Tenant, direct: Pulse) -> None:
    """F31 C40: orbit-api and orbit-dispatch a day ahead, orbit-recover a day behind, the worker ten minutes ahead: due
    times, leases, deadlines and credentials are what the database's clock says."""
    expiry = database_now(direct.session) + timedelta(hours=1)
    set_columns(direct.session, "credentials", {"expires_at": expiry}, credential_id=home.credential_id)
    abandoned = direct.submit(concurrency_key="k", on_unknown=OnUnknown.RETRY, retry=AGAIN)
    held = direct.worker().claim_one(lease_ms=1_000)
    lease_end = direct.attempt(held).lease_expires_at
    api, address = site.api(clock="+1d")
    dispatcher, url = site.dispatch(clock="+1d")
    recover = site.recover(clock="-1d")
    assert abs(ahead(api) - DAY) < 60
    assert abs(ahead(dispatcher) - DAY) < 60
    assert abs(ahead(recover) + DAY) < 60
    client = RawClient(address, home.token_text)
    long = client.ask("POST", "/v1/tasks", submit_body(home.queue_id, payload={"ms": 4_500}), key="long")
    assert long.status == 201, long.body
    later = direct.submit(delay_ms=3_600_000, start_deadline_at=None)
    soon = direct.submit(delay_ms=2_500)
    waits = direct.submit(handler="nobody", timeout_ms=3_600_000)
    started = time.time()
    site.worker(home, url, clock="+10m")
    eventually(lambda: direct.usage().unfinished == 2, within=25, pause=0.1)
    assert abs(site.executions()[0]["at"] - started - 600) < 60
    assert {direct.task(task_id).state for task_id in (later, waits)} == {"WAITING"}
    (attempt,) = direct.rows("attempts", task_id=bytes.fromhex(long.json["data"]["task"]["id"]))
    assert (attempt.state, attempt.epoch) == ("SUCCEEDED", 1), (
        "more than two leases long, and never judged dead"
    )
    (first,) = direct.rows("attempts", task_id=soon)
    due = direct.task(soon).available_at
    assert due <= first.leased_at < due + timedelta(seconds=5)
    ended, again = sorted(direct.rows("attempts", task_id=abandoned), key=lambda row: row.epoch)
    assert (ended.attempt_id, ended.state, again.state) == (held.attempt_id, "EXPIRED", "SUCCEEDED")
    assert again.leased_at >= lease_end
    assert direct.task(abandoned).attempts_used == 1


def test_credentials_end_by_the_databases_clock_c40(site: Site, home: Tenant, direct: Pulse) -> None:
    """C40: an API a day behind refuses what has expired; a day ahead, above, it accepts what hasn't."""
    expired = database_now(direct.session) - timedelta(seconds=1)
    set_columns(direct.session, "credentials", {"expires_at": expired}, credential_id=home.credential_id)
    _, address = site.api(clock="-1d")
    reply = RawClient(address, home.token_text).ask("POST", "/v1/tasks", submit_body(home.queue_id), key="k")
    assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")
