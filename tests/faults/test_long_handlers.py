"""C06, C07: long work under the shortest lease is never judged dead; a dead worker's leases end by themselves, whoever
comes back under its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit.domain.limits import LEASE_MIN_MS
from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from orbit.localdb.instance import Instance
from tests.support.commitproxy import CommitProxy
from tests.support.eventually import eventually
from tests.support.invariants import assert_sound
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)
# A round trip to the database takes this much longer.
LATENCY_SECONDS = 0.2
LEASES_LONG = 10 if os.environ.get("ORBIT_SOAK") else 4


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.fixture
def hasty(victim: Instance, tmp_path: Path) -> Iterator[Site]:
    """An installation with the shortest lease that is permitted."""
    victim.start()
    with Site(victim.dsn(), tmp_path, lease_ms=LEASE_MIN_MS) as opened:
        yield opened
    assert_sound(victim.dsn())


def test_busy_handlers_many_leases_long_c06(
    hasty: Site, victim: Instance, home: Tenant, direct: Pulse
) -> None:
    """C06: the shortest lease, handlers many times as long, one computing without pause, a slow database: none ends."""
    with CommitProxy(victim.dsn()) as way:
        _, url = hasty.dispatch(dsn=way.dsn)
        hasty.recover()
        workers = [hasty.worker(home, url, capacity=5) for _ in range(3)]
        ms = LEASES_LONG * LEASE_MIN_MS
        ids = [direct.submit(payload=payload(ms=ms, busy=n == 0), concurrency_key=f"k{n}") for n in range(15)]
        eventually(lambda: len(hasty.executions()) == len(ids))
        way.delay(LATENCY_SECONDS / 2)
        eventually(lambda: direct.usage().unfinished == 0, within=40, pause=0.2)
    for task_id in ids:
        states = [(row.epoch, row.state) for row in direct.rows("attempts", task_id=task_id)]
        assert states == [(1, "SUCCEEDED")]
        assert direct.task(task_id).attempts_used == 1
    assert len({line["pid"] for line in hasty.executions()}) == len(workers)


def test_the_same_name_is_another_worker_c07(site: Site, home: Tenant, direct: Pulse) -> None:
    """C07: a worker is killed and started again under its name: a new identity that renews nothing of the old one."""
    _, url = site.dispatch()
    site.recover()
    killed = site.worker(home, url, capacity=1, name="the-only-one")
    task_id = direct.submit(
        payload=payload(ms=1_000), on_unknown=OnUnknown.RETRY, retry=AGAIN, concurrency_key="k"
    )
    eventually(lambda: len(site.executions()) == 1)
    killed.kill()
    site.worker(home, url, capacity=1, name="the-only-one")
    (held,) = direct.rows("attempts", task_id=task_id)
    sessions = direct.rows("worker_sessions", application_id=home.application_id)
    assert [row.name for row in sessions] == ["the-only-one"] * 2
    assert len({row.worker_id for row in sessions}) == 2
    eventually(lambda: direct.task(task_id).state == "SUCCEEDED", within=25)
    old, new = sorted(direct.rows("attempts", task_id=task_id), key=lambda row: row.epoch)
    assert (old.attempt_id, old.state, new.state) == (held.attempt_id, "UNKNOWN", "SUCCEEDED")
    assert old.ended_at >= held.lease_expires_at
    assert new.concurrency_token > old.concurrency_token
    assert len(site.executions()) == 2
