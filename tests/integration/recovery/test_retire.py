"""Clearing away idle lanes and gone workers never touches what is needed, least of all a lease."""

from __future__ import annotations

import pytest

from orbit.pulse.retire import retire_lanes, retire_workers
from orbit.recovery.retire import LANES_LIMIT, RetireLoop
from orbit.runtime.database import Database
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.sql.retirement import select_gone_workers, select_idle_lanes
from tests.support.pulse import Pulse, Worker
from tests.support.tenants import make_tenant


@pytest.fixture
def own_pulse(own_session: Session) -> Pulse:
    return Pulse(own_session, make_tenant(own_session))


def age_lanes(pulse: Pulse, seconds: int) -> None:
    sql = "UPDATE lanes SET touched_at = UTC_TIMESTAMP(6) - INTERVAL %s SECOND"
    pulse.session.run(lambda tx: tx.execute(sql, (seconds,)))


def end_session(worker: Worker, seconds_ago: int) -> None:
    sql = """
        UPDATE worker_sessions SET ended_at = UTC_TIMESTAMP(6) - INTERVAL %s SECOND WHERE session_id = %s
    """
    worker.pulse.session.run(lambda tx: tx.execute(sql, (seconds_ago, worker.session_id)))


async def test_an_idle_lane_goes_and_comes_back(own_dsn: Dsn, own_pulse: Pulse) -> None:
    """A lane without ready tasks is deleted after ten minutes; the next task makes it again and is claimed."""
    own_pulse.submit(concurrency_key="k")
    worker = own_pulse.worker()
    worker.finish(worker.run_one())
    async with Database(own_dsn, writers=1, readers=1) as database:
        loop = RetireLoop(database, select_idle_lanes, retire_lanes, limit=LANES_LIMIT)
        age_lanes(own_pulse, 590)
        assert await loop.run_once() == 0
        age_lanes(own_pulse, 610)
        assert await loop.run_once() == 1
        assert await loop.run_once() == 0
    assert own_pulse.rows("lanes") == []
    task_id = own_pulse.submit(concurrency_key="k")
    assert worker.claim_one().task_id == task_id


def test_a_lane_with_ready_tasks_stays(own_pulse: Pulse) -> None:
    """Judged by the tasks themselves, not by the copy in the lane; an untouched lane may well hold an old backlog."""
    own_pulse.submit()
    (lane,) = own_pulse.rows("lanes")
    age_lanes(own_pulse, 3_600)
    application_id = own_pulse.tenant.application_id
    assert own_pulse.session.run(lambda tx: select_idle_lanes(tx, 10)) == []
    assert own_pulse.session.run(lambda tx: retire_lanes(tx, application_id, [lane.lane_id])) == 0
    own_pulse.session.run(lambda tx: tx.execute("UPDATE lanes SET head_dispatch_at = NULL"))
    assert own_pulse.session.run(lambda tx: retire_lanes(tx, application_id, [lane.lane_id])) == 0


def test_a_lane_of_a_held_key_comes_back_occupied(own_pulse: Pulse) -> None:
    """While a key is held its lane may go; one made again for it can't be claimed."""
    own_pulse.submit(concurrency_key="k")
    worker = own_pulse.worker()
    held = worker.run_one()
    age_lanes(own_pulse, 3_600)
    (lane,) = own_pulse.rows("lanes")
    application_id = own_pulse.tenant.application_id
    assert own_pulse.session.run(lambda tx: retire_lanes(tx, application_id, [lane.lane_id])) == 1
    second = own_pulse.submit(concurrency_key="k")
    assert own_pulse.row("lanes").occupied == 1
    assert worker.claim(1) == ()
    worker.finish(held)
    assert worker.claim_one().task_id == second


async def test_gone_workers_are_forgotten_but_never_their_leases(own_dsn: Dsn, own_pulse: Pulse) -> None:
    """C07: a registration that holds an attempt stays, however long ago its session ended; the lease is untouched."""
    own_pulse.submit()
    holder, idle, fresh = own_pulse.worker(), own_pulse.worker(), own_pulse.worker()
    held = holder.run_one()
    before = own_pulse.attempt(held)
    for worker, seconds in ((holder, 90_000), (idle, 90_000), (fresh, 80_000)):
        end_session(worker, seconds)
    async with Database(own_dsn, writers=1, readers=1) as database:
        loop = RetireLoop(database, select_gone_workers, retire_workers, limit=10)
        assert await loop.run_once() == 1
        left = {row.worker_ref for row in own_pulse.rows("worker_sessions")}
        assert left == {holder.worker_ref, fresh.worker_ref}
        assert own_pulse.attempt(held) == before
        holder.finish(held)
        assert await loop.run_once() == 1
    assert [row.worker_ref for row in own_pulse.rows("worker_sessions")] == [fresh.worker_ref]


def test_a_worker_that_came_back_meanwhile_stays(own_pulse: Pulse) -> None:
    """Candidates are judged again under the application's lock."""
    worker = own_pulse.worker()
    end_session(worker, 90_000)
    candidates = own_pulse.session.run(lambda tx: select_gone_workers(tx, 10))
    assert candidates == [(own_pulse.tenant.application_id, worker.worker_ref)]
    own_pulse.session.run(lambda tx: tx.execute("UPDATE worker_sessions SET ended_at = NULL"))
    refs = [worker_ref for _, worker_ref in candidates]
    assert own_pulse.session.run(lambda tx: retire_workers(tx, own_pulse.tenant.application_id, refs)) == 0
