"""F20, F21, F30: the database restarts, is away for longer than a lease, or its clock steps."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from orbit.localdb.instance import Instance
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.commitproxy import CommitProxy
from tests.support.database import migrate
from tests.support.eventually import eventually
from tests.support.faketime import ServerClock, clocked_instance
from tests.support.invariants import assert_sound
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, submit_body
from tests.support.tenants import Tenant, make_tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_the_database_restarts_under_load_f20(
    site: Site, victim: Instance, home: Tenant, direct: Pulse, how: str
) -> None:
    """F20 I8: 503 meanwhile, every process comes back by itself, every submit resolves to one task, no run is lost."""
    api, address = site.api()
    dispatcher, url = site.dispatch()
    recover = site.recover()
    worker = site.worker(home, url)
    client = RawClient(address, home.token_text)
    keys = [secrets.token_hex(8) for _ in range(30)]
    bodies = submit_body(home.queue_id, payload={"ms": 50}, on_unknown="RETRY", retry={"max_attempts": 10})
    made = [client.ask_patiently("POST", "/v1/tasks", bodies, key=key) for key in keys[:10]]
    if how == "clean":
        victim.stop()
    else:
        victim.kill()
    away = client.ask("POST", "/v1/tasks", bodies, key=keys[10])
    assert away.status == 503
    assert away.headers.get("Retry-After") or away.headers.get("retry-after")
    victim.start()
    made += [client.ask_patiently("POST", "/v1/tasks", bodies, key=key) for key in keys[10:]]
    assert all(reply.status in (200, 201) for reply in made)
    eventually(lambda: direct.usage().unfinished == 0, within=30, pause=0.1)
    ids = {reply.json["data"]["task"]["id"] for reply in made}
    assert ids == {row.task_id.hex() for row in direct.rows("tasks", queue_id=home.queue_id)}
    assert len(ids) == len(keys)
    assert all(process.is_alive for process in (api, dispatcher, recover, worker))


def test_unreachable_for_longer_than_a_lease_f21(
    site: Site, victim: Instance, home: Tenant, direct: Pulse
) -> None:
    """F21: away for longer than a lease: nothing expires before workers could renew; no unknown effect."""
    with CommitProxy(victim.dsn()) as way:
        _, url = site.dispatch(dsn=way.dsn)
        site.recover(dsn=way.dsn)
        site.worker(home, url, capacity=4)
        ids = [direct.submit(payload=payload(ms=7_000), concurrency_key=f"k{n}") for n in range(4)]
        eventually(lambda: len(site.executions()) == 4)
        way.refuse()
        lease_end = max(row.lease_expires_at for row in direct.rows("attempts", queue_id=home.queue_id))
        eventually(lambda: _now(direct) > lease_end, within=15, pause=0.2)
        way.accept()
        eventually(lambda: direct.usage().unfinished == 0, within=30, pause=0.1)
    for task_id in ids:
        assert [row.state for row in direct.rows("attempts", task_id=task_id)] == ["SUCCEEDED"]
        assert direct.events(task_id) == ["SUCCEEDED"]


def _now(pulse: Pulse) -> Any:
    return pulse.session.run(lambda tx: tx.now)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerClock]:
    with clocked_instance(tmp_path_factory.mktemp("clock")) as started:
        migrate(started.instance.dsn())
        yield started


@pytest.fixture
def moved(clock: ServerClock, tmp_path: Path) -> Iterator[tuple[Site, Pulse]]:
    """An installation on a server whose clock can be stepped."""
    dsn: Dsn = clock.instance.dsn()
    clock.step("+0")
    session = Session(dsn)
    with Site(dsn, tmp_path) as site:
        yield site, Pulse(session, make_tenant(session))
    session.close()
    assert_sound(dsn)


@pytest.mark.parametrize("shift", ["+2h", "-1h"])
def test_the_databases_clock_steps_f30(clock: ServerClock, moved: tuple[Site, Pulse], shift: str) -> None:
    """F30: forwards gives grace instead of a mass expiry, backwards keeps what runs; no task is started twice."""
    site, direct = moved
    tenant = direct.tenant
    _, url = site.dispatch()
    site.recover()
    site.worker(tenant, url, capacity=8)
    running = [direct.submit(payload=payload(ms=4_000), concurrency_key=f"k{n}") for n in range(4)]
    delayed = direct.submit(delay_ms=60_000, on_unknown=OnUnknown.RETRY, retry=AGAIN)
    frozen = direct.task(delayed).available_at
    eventually(lambda: len(site.executions()) == 4)
    before = _now(direct)
    clock.step(shift)
    assert abs((_now(direct) - before).total_seconds()) > 3_000
    eventually(
        lambda: all(direct.task(task_id).state == "SUCCEEDED" for task_id in running), within=25, pause=0.1
    )
    for task_id in running:
        assert [row.epoch for row in direct.rows("attempts", task_id=task_id)] == [1]
    assert direct.task(delayed).available_at == frozen, "a delay is computed once"
    if shift == "+2h":
        eventually(lambda: direct.task(delayed).state == "SUCCEEDED", within=15)
    else:
        assert direct.task(delayed).state == "WAITING"
    ran = [line["task"] for line in site.executions()]
    assert len(ran) == len(set(ran))
