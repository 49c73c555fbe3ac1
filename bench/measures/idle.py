"""What Orbit costs while there is nothing to do."""

from __future__ import annotations

import time

from bench.counters import difference, read_counts
from bench.cpu import cpu_of, resident_mb
from bench.crew import Post, crew
from bench.fleet import API, DISPATCH, RECOVER
from bench.lab import Lab
from bench.results import Column, Measure, Run, Values, rows_of

NAME = "idle"
DAEMONS = "all daemons (memory: the largest)"
DAEMONS_AND_WORKERS = "all daemons and the workers"
SETTLE_SECONDS = 3.0

NOTE = """
The daemons and idle, connected workers over a stretch without a task. The workers share one process here, so its
memory is not what a worker process takes. A session's memory is what the dispatcher grew by, over the sessions.
"""


def measure(lab: Lab) -> Measure:
    """Connect the workers, then watch."""
    lab.fleet.keep()  # fresh processes: nothing is left of earlier measurements
    lab.fleet.keep(API, DISPATCH, RECOVER)
    tenant, sessions = lab.fresh(), lab.scale.idle_workers
    before = resident_mb(lab.fleet.pid(DISPATCH))
    with crew(lab, Post(tenant=tenant, dispatcher=DISPATCH, workers=sessions, capacity=10)) as workers:
        workers.release()
        workers.await_connected()
        time.sleep(SETTLE_SECONDS)
        counts = read_counts(lab.instance)
        found = _watch({**lab.fleet.pids(), **workers.pids, **_database(lab)}, lab.scale.idle_seconds)
        counts = difference(read_counts(lab.instance), counts)
    found[DISPATCH]["session_kb"] = (found[DISPATCH]["memory"] - before) * 1_000 / sessions
    found[DAEMONS] = {
        "cpu": sum(found[name]["cpu"] for name in lab.fleet.pids()),
        "memory": max(found[name]["memory"] for name in lab.fleet.pids()),
    }
    if "database" in found:
        found["database"]["statements"] = counts["statements"] / lab.scale.idle_seconds
    found[DAEMONS_AND_WORKERS] = {"cpu": found[DAEMONS]["cpu"] + found["worker-1"]["cpu"]}
    names = {"worker-1": f"{sessions} workers in one process"}
    return Measure(
        name=NAME,
        title="Idle",
        note=NOTE.strip(),
        columns=[
            Column(name="cpu", title="% of a core", decimals=1),
            Column(name="memory", title="memory MB", decimals=0),
            Column(name="session_kb", title="KB a session", decimals=0),
            Column(name="statements", title="statements/s", decimals=1),
        ],
        rows=rows_of({names.get(name, name): [values] for name, values in found.items()}),
    )


def cpu_in_all(run: Run) -> float | None:
    """Return the share of a core that daemons and workers take together, in percent."""
    return run.value(NAME, DAEMONS_AND_WORKERS, "cpu")


def largest_daemon(run: Run) -> float | None:
    """Return the memory of the largest daemon in MB."""
    return run.value(NAME, DAEMONS, "memory")


def _database(lab: Lab) -> dict[str, int]:
    pid = lab.instance.pid
    return {} if pid is None else {"database": pid}


def _watch(pids: dict[str, int], seconds: float) -> dict[str, Values]:
    before, began = cpu_of(pids), time.monotonic()
    time.sleep(seconds)
    after, elapsed = cpu_of(pids), time.monotonic() - began
    return {
        name: {"cpu": (after[name] - before[name]) / elapsed * 100, "memory": resident_mb(pid)}
        for name, pid in pids.items()
    }
