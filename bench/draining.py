"""Work off what waits, and tell how fast and at what cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench.crew import Crew, Post, crew
from bench.lab import Lab
from bench.meter import Meter
from bench.results import Column, Values
from bench.tenants import unfinished

POLL_SECONDS: Final = 0.004
# Slower drains are cut here: what is done by then counts.
LONGEST_SECONDS: Final = 8.0
CONNECT_SECONDS: Final = 20.0

COLUMNS: Final = [
    Column(name="rate", title="tasks/s"),
    Column(name="dispatch_us", title="dispatcher CPU µs/task"),
    Column(name="worker_us", title="worker CPU µs/task"),
    Column(name="database_us", title="database CPU µs/task"),
    Column(name="commits", title="commits/task", decimals=3),
    Column(name="statements", title="statements/task", decimals=2),
    Column(name="log_syncs", title="log syncs/task", decimals=3),
    Column(name="deadlocks", title="deadlocks"),
    Column(name="others", title="other load, cores", decimals=2),
]


def drain(lab: Lab, posts: Sequence[Post], tasks: int) -> Values:
    """Let workers end `tasks` of the tasks that wait; return the rate and the costs.

    Time runs from the first handler's start until the store says that all have ended, connection and imports excluded.
    """
    queues = list({post.tenant.queue_id: None for post in posts})
    waiting = _left(lab, queues)
    with crew(lab, *posts) as workers:
        meter = Meter(lab, workers.pids)
        workers.release()
        began = _await_first(workers)
        meter.restart_cpu()
        done = looks = 0
        while done < tasks and time.monotonic() < began + LONGEST_SECONDS:
            time.sleep(POLL_SECONDS)
            done = waiting - _left(lab, queues)
            looks += len(queues)
        elapsed = time.monotonic() - began
        costs = meter.read(done, own_statements=looks)
        return {"rate": done / elapsed, "tasks": done, "seconds": elapsed, **costs}


def _await_first(workers: Crew) -> float:
    """Wait for the first start of a handler; return when it was."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while not (starts := workers.starts).total:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no task was started within {CONNECT_SECONDS:g} s; see the logs")
        time.sleep(POLL_SECONDS)
    return starts.first


def _left(lab: Lab, queues: Sequence[bytes]) -> int:
    return sum(unfinished(lab.reader, queue) for queue in queues)
