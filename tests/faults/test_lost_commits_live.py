"""F2-F8 with real processes: a COMMIT or its answer is lost between a process and the database."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from orbit.localdb.instance import Instance
from tests.support.commitproxy import CommitProxy, Loss, every, inserts, writes
from tests.support.eventually import eventually
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.rawclient import RawClient, submit_body
from tests.support.rows import lapse
from tests.support.tenants import Tenant
from tests.support.threads import together


@pytest.fixture
def proxy(site: Site, victim: Instance) -> Iterator[CommitProxy]:
    with CommitProxy(victim.dsn()) as opened:
        yield opened


def test_submits_over_http_f2_f3_f4(site: Site, home: Tenant, direct: Pulse, proxy: CommitProxy) -> None:
    """F2 F3 F4: 201 (resolved) or 503, never 4xx or 500; the same key gives the original receipt; one task each."""
    _, address = site.api(dsn=proxy.dsn)
    client = RawClient(address, home.token_text)
    for loss in Loss:
        proxy.losses.clear()
        proxy.arm(loss, when=inserts("tasks"))
        key, body = secrets.token_hex(8), submit_body(home.queue_id)
        first = client.ask("POST", "/v1/tasks", body, key=key)
        (lost,) = proxy.await_losses()
        assert lost.loss is loss
        assert first.status in (201, 503), first.body
        again = client.ask_patiently("POST", "/v1/tasks", body, key=key)
        assert again.status in (200, 201)
        assert again.json["data"]["deduplicated"] is (first.status == 201)
        if first.status == 201:
            assert again.json["data"]["task"] == first.json["data"]["task"]
    assert direct.usage().unfinished == len(Loss)


@pytest.mark.parametrize("loss", [Loss.BEFORE, Loss.AFTER])
def test_fifty_under_one_key_and_the_winner_is_cut_off_c22(
    site: Site, home: Tenant, direct: Pulse, proxy: CommitProxy, loss: Loss
) -> None:
    """C22 F38: fifty submits under one key, half with another body; the first one's connection is cut at its COMMIT:
    one 201, 200 for the same body, 409 for the other, no 5xx, one task."""
    _, address = site.api(dsn=proxy.dsn)
    client, key = RawClient(address, home.token_text, timeout=30), secrets.token_hex(8)
    proxy.arm(loss, when=inserts("tasks"))
    bodies = [submit_body(home.queue_id, payload={"n": n % 2}) for n in range(50)]
    replies = together([partial(client.ask, "POST", "/v1/tasks", body, key=key) for body in bodies])
    assert [lost.loss for lost in proxy.losses] == [loss]
    assert Counter(reply.status for reply in replies) == {201: 1, 200: 24, 409: 25}
    assert {reply.code for reply in replies} == {None, "IDEMPOTENCY_CONFLICT"}
    (task,) = direct.rows("tasks", queue_id=home.queue_id)
    accepted = {reply.json["data"]["task"]["id"] for reply in replies if reply.status < 300}
    assert accepted == {task.task_id.hex()}


@pytest.mark.parametrize("loss", [Loss.BEFORE, Loss.AFTER])
def test_dispatch_loses_claims_starts_and_results_f5_f6_f7(
    site: Site, home: Tenant, direct: Pulse, proxy: CommitProxy, loss: Loss
) -> None:
    """F5 F6 F7: every second COMMIT that touches attempts is lost; each handler runs once, each task ends once."""
    _, url = site.dispatch(dsn=proxy.dsn)
    site.recover()
    site.worker(home, url)
    proxy.arm(loss, times=1_000, when=every(2, writes("attempts")))
    ids = [direct.submit(payload=b'{"ms": 20}', concurrency_key=f"k{n % 3}") for n in range(24)]
    eventually(lambda: direct.usage().unfinished == 0, within=25, pause=0.1)
    proxy.disarm()
    assert len(proxy.losses) >= 3
    assert sorted(line["task"] for line in site.executions()) == sorted(task_id.hex() for task_id in ids)
    for task_id in ids:
        assert direct.events(task_id) == ["SUCCEEDED"]
        assert [row.epoch for row in direct.rows("attempts", task_id=task_id)] == [1]


def test_recover_loses_its_commit_f8(site: Site, home: Tenant, direct: Pulse, proxy: CommitProxy) -> None:
    """F8: the second pass is a no-op; permits are released once and no attempt is counted twice."""
    task_id = direct.submit(concurrency_key="k")
    held = direct.worker().run_one()
    lapse(direct.session, held.attempt_id)
    proxy.arm(Loss.AFTER, when=writes("attempts"))
    site.dispatch()
    site.recover(dsn=proxy.dsn)
    proxy.await_losses(within=25)
    eventually(lambda: direct.task(task_id).state == "NEEDS_REVIEW", within=20)
    assert direct.key("k").last_token == 2
    assert direct.events(task_id) == ["NEEDS_REVIEW"]
    assert direct.attempt(held).state == "UNKNOWN"
