"""C31: the server ends statements with 1213 or 1205; each daemon's loops wait and go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orbit.domain.ids import new_id
from orbit.domain.states import OnUnknown
from orbit.localdb.instance import Instance
from orbit.pulse.dispatchers import SILENT_SECONDS
from tests.support.eventually import eventually
from tests.support.processes import Site
from tests.support.pulse import Pulse, Worker
from tests.support.rows import lapse
from tests.support.tenants import Tenant

RECOVER_LOOPS = ("beat", "expire", "idle_lanes", "gone_workers")
DISPATCH_LOOPS = ("sessions", "presence", "prune")
# What each loop, tick and renewal writes, but for what the dispatcher's start itself needs.
WRITES = (
    ("recovery_clock", "UPDATE"),
    ("attempts", "INSERT"),
    ("attempts", "UPDATE"),
    ("lanes", "DELETE"),
    ("worker_sessions", "UPDATE"),
    ("worker_sessions", "DELETE"),
    ("dispatchers", "INSERT"),
)


_REFUSE = """
IF {when} THEN IF RAND() < 0.5 THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'refused by a test';
ELSE SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'refused by a test'; END IF; END IF
"""
_SILENT_DISPATCHER = """
INSERT INTO dispatchers (dispatcher_id, url, sessions, started_at, heartbeat_at)
VALUES (%s, 'ws://x', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s SECOND)
"""


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@contextmanager
def refusing(server: Instance, *writes: tuple[str, str], when: str = "TRUE") -> Iterator[None]:
    """Let the server itself answer these writes (of rows `when`) with 1213 or 1205, as chance has it, whoever makes
    them."""
    database = server.dsn().database
    names = [f"{database}.refuse_{table}_{verb.lower()}" for table, verb in writes]
    try:
        for name, (table, verb) in zip(names, writes, strict=True):
            server.execute(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {database}.{table} FOR EACH ROW"
                f" {_REFUSE.format(when=when)}"
            )
        yield
    finally:
        for name in names:
            server.execute(f"DROP TRIGGER IF EXISTS {name}")


def old_rows(direct: Pulse) -> Worker:
    """Leave something to do for each loop that clears away; return the worker that is long gone."""
    direct.submit(concurrency_key="old")
    gone = direct.worker()
    gone.finish(gone.run_one())
    statements = [
        ("UPDATE lanes SET touched_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR", ()),
        (
            "UPDATE worker_sessions SET ended_at = UTC_TIMESTAMP(6) - INTERVAL 2 DAY WHERE worker_ref = %s",
            (gone.worker_ref,),
        ),
        (_SILENT_DISPATCHER, (new_id(), SILENT_SECONDS + 60)),
    ]
    for sql, params in statements:
        direct.session.run(lambda tx, sql=sql, params=params: tx.execute(sql, params))  # type: ignore[misc]
    return gone


def test_every_loop_outlives_contention_c31(
    site: Site, victim: Instance, home: Tenant, direct: Pulse
) -> None:
    """C31: each loop fails, tries after tries, and is logged; no process ends; then everything that waited is done."""
    gone = old_rows(direct)
    with refusing(victim, ("dispatchers", "DELETE")):
        dispatcher, url = site.dispatch()
        dispatcher.await_event("loop_failed", loop="prune")
        worker, leaver = site.worker(home, url, capacity=1), site.worker(home, url, capacity=1)
        running = direct.submit(payload=payload(ms=12_000), concurrency_key="k")
        eventually(lambda: len(site.executions()) == 1)
        if site.executions()[0]["pid"] == leaver.pid:
            worker, leaver = leaver, worker
        lapsed = direct.submit(handler="other", on_unknown=OnUnknown.RETRY)
        held = direct.worker().claim_one(handlers=(("other", "1"),))
        lapse(direct.session, held.attempt_id)
        with refusing(victim, *WRITES):
            recover = site.recover()
            leaver.kill()
            late = direct.submit()
            for loop in RECOVER_LOOPS:
                if loop != "expire":  # it judges nothing without a beat, so it has nothing to write either
                    recover.await_event("loop_failed", loop=loop)
            for loop in DISPATCH_LOOPS:
                dispatcher.await_event("loop_failed", loop=loop)
            assert direct.rows("attempts", task_id=late) == []
    for loop in RECOVER_LOOPS:
        if loop != "expire":
            recover.await_event("loop_recovered", loop=loop)
    for loop in DISPATCH_LOOPS:
        dispatcher.await_event("loop_recovered", loop=loop)
    # Only the lapsed attempt's end: what runs must be renewed meanwhile.
    with refusing(victim, ("attempts", "UPDATE"), when=f"OLD.attempt_id = x'{held.attempt_id.hex()}'"):
        recover.await_event("loop_failed", loop="expire")
    recover.await_event("loop_recovered", loop="expire")
    eventually(lambda: direct.task(lapsed).state == "WAITING", within=20)
    eventually(lambda: {direct.task(one).state for one in (running, late)} == {"SUCCEEDED"}, within=30)
    assert [row.epoch for row in direct.rows("attempts", task_id=running)] == [1], "renewals went on in time"
    assert direct.rows("worker_sessions", worker_ref=gone.worker_ref) == []
    assert all(process.is_alive for process in (dispatcher, recover, worker))
