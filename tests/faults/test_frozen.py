"""F14, C01, F15, F16, C16, F17: workers that freeze, and connections that are cut or go silent."""

from __future__ import annotations

import json
import threading
from typing import Any

from orbit.domain.retry import RetryPolicy
from orbit.domain.states import Backoff, OnUnknown
from tests.support.eventually import eventually
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.tcpproxy import Direction, TcpProxy
from tests.support.tenants import Tenant

AGAIN = RetryPolicy(max_attempts=10, backoff=Backoff.FIXED, initial_ms=100, max_ms=100)


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def through(proxy: TcpProxy, url: str) -> str:
    """The dispatcher's URL by way of the proxy."""
    port = url.rpartition(":")[2].partition("/")[0]
    return url.replace(f":{port}", f":{proxy.port}")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def test_a_worker_frozen_past_its_lease_f14_c01(site: Site, home: Tenant, direct: Pulse) -> None:
    """F14 C01: the key goes on under a larger token; the sleeper's late result releases nothing again."""
    _, url = site.dispatch()
    site.recover()
    sleeper = site.worker(home, url)
    first = direct.submit(payload=payload(ms=1_000), concurrency_key="k")
    eventually(lambda: len(site.executions()) == 1)
    sleeper.freeze()
    second = direct.submit(payload=payload(ms=10), concurrency_key="k")
    site.worker(home, url)
    eventually(lambda: direct.task(second).state == "SUCCEEDED", within=20)
    assert direct.task(first).state == "NEEDS_REVIEW"
    released = direct.key("k").last_token
    sleeper.thaw()
    (attempt,) = direct.rows("attempts", task_id=first)
    eventually(lambda: len(site.executions("end")) == 2, within=10)
    third = direct.submit(payload=payload(), concurrency_key="k")
    eventually(lambda: direct.task(third).state == "SUCCEEDED", within=20)
    assert direct.key("k").last_token == released + 2, "one claim and one release, no more"
    assert direct.rows("attempts", task_id=first) == [attempt]
    assert direct.task(first).state == "NEEDS_REVIEW"
    tokens = [line["token"] for line in site.executions()]
    assert tokens == sorted(tokens)
    assert direct.events(first) == ["NEEDS_REVIEW"]


def test_connections_cut_again_and_again_f16_f17(site: Site, home: Tenant, direct: Pulse) -> None:
    """F16 F17 C16: cut at random for seconds; every handler runs once, every result is taken once, same attempts."""
    _, url = site.dispatch()
    site.recover()
    with TcpProxy(port_of(url)) as proxy:
        site.worker(home, through(proxy, url), capacity=8)
        ids = [direct.submit(payload=payload(ms=300)) for _ in range(64)]
        stop = threading.Event()

        def cutter() -> None:
            while not stop.wait(0.6):
                proxy.cut()

        cutting = threading.Thread(target=cutter)
        cutting.start()
        try:
            eventually(lambda: direct.usage().unfinished <= 16, within=30, pause=0.1)
        finally:
            stop.set()
            cutting.join()
        eventually(lambda: direct.usage().unfinished == 0, within=20, pause=0.1)
        assert proxy.accepted > 2
    for task_id in ids:
        assert direct.events(task_id) == ["SUCCEEDED"]
        starts = [line["epoch"] for line in site.executions() if line["task"] == task_id.hex()]
        ran = [row.epoch for row in direct.rows("attempts", task_id=task_id) if row.started_at]
        assert starts == ran, "at most one run a Start, and no Start that ran nowhere"
        assert len(starts) == 1


def test_a_half_open_worker_f15(site: Site, home: Tenant, direct: Pulse) -> None:
    """F15: the worker hears nothing and is heard by nobody; the lease decides, and the task runs elsewhere."""
    _, url = site.dispatch()
    site.recover()
    with TcpProxy(port_of(url)) as proxy:
        site.worker(home, through(proxy, url))
        task_id = direct.submit(
            payload=payload(ms=300), on_unknown=OnUnknown.RETRY, retry=AGAIN, concurrency_key="k"
        )
        eventually(lambda: len(site.executions()) == 1)
        proxy.black_hole(Direction.UP, Direction.DOWN)
        site.worker(home, url)
        eventually(lambda: direct.task(task_id).state == "SUCCEEDED", within=25)
        tokens = [line["token"] for line in site.executions()]
        assert len(tokens) == 2
        assert tokens[0] < tokens[1]
        states = {row.epoch: row.state for row in direct.rows("attempts", task_id=task_id)}
        assert states == {1: "UNKNOWN", 2: "SUCCEEDED"}
