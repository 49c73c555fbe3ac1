"""How long a task waits when there is little to do."""

from __future__ import annotations

import statistics
import time
from functools import partial

import trio

from bench.crew import Crew, Post, crew
from bench.fleet import API, DISPATCH, RECOVER
from bench.lab import Lab
from bench.load import Target, submit_paced
from bench.meter import Meter
from bench.results import Column, Measure, Values, rows_of

NAME = "latency"
PACED = "one task each 25 ms"
INTERVAL_SECONDS = 0.025
WARM_UP = 3

NOTE = """
From just before the submit call to the start of the handler in an idle worker: the call, its COMMIT, the hint, the
claim, the assignment and the granted Start. Milliseconds on one monotonic clock.
"""


def measure(lab: Lab) -> Measure:
    """Submit at a slow, steady pace."""
    lab.fleet.keep(API, DISPATCH, RECOVER)
    found = [_once(lab) for _ in range(lab.scale.rounds)]
    return Measure(
        name=NAME,
        title="Latency at light load",
        note=NOTE.strip(),
        columns=[
            *(Column(name=name, title=name, decimals=1) for name in ("p50", "p95", "p99", "max")),
            Column(name="api_us", title="API CPU µs/task"),
            Column(name="dispatch_us", title="dispatcher CPU µs/task"),
            Column(name="worker_us", title="worker CPU µs/task"),
            Column(name="database_us", title="database CPU µs/task"),
            Column(name="statements", title="statements/task", decimals=1),
            Column(name="commits", title="commits/task", decimals=1),
            Column(name="others", title="other load, cores", decimals=2),
        ],
        rows=rows_of({PACED: found}),
    )


def _once(lab: Lab) -> Values:
    tenant = lab.fresh()
    target = Target(lab.fleet.url(API), tenant.token_text, tenant.queue)
    with crew(lab, Post(tenant=tenant, dispatcher=DISPATCH)) as workers:
        workers.release()
        workers.await_connected()
        trio.run(partial(submit_paced, target, tasks=WARM_UP, interval=0.2))
        meter = Meter(lab, workers.pids)
        trio.run(partial(submit_paced, target, tasks=lab.scale.paced_tasks, interval=INTERVAL_SECONDS))
        delays = _await_delays(workers, WARM_UP + lab.scale.paced_tasks)[WARM_UP:]
        costs = meter.read(lab.scale.paced_tasks)
    cuts = statistics.quantiles((delay * 1_000 for delay in delays), n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(delays) * 1_000, **costs}


def _await_delays(workers: Crew, count: int) -> list[float]:
    deadline = time.monotonic() + 15
    while workers.starts.total < count and time.monotonic() < deadline:
        time.sleep(0.02)
    delays = workers.delays()
    if len(delays) < count:
        raise RuntimeError(f"{len(delays)} of {count} tasks were started")
    return delays
