"""Recoverers share their work without harm, outlive errors, and never act on what they saw before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from orbit.domain.errors import StoreError
from orbit.domain.ids import new_id
from orbit.domain.states import AttemptState, TaskState
from orbit.pulse.dispatchers import beat_dispatcher
from orbit.pulse.expire import Expired, find_expired
from orbit.recovery.beat import BeatLoop
from orbit.recovery.expire import ExpireLoop
from orbit.recovery.main import recovery_loops
from orbit.runtime.database import Database
from orbit.runtime.runner import run_loop
from orbit.store import session as session_module
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.pulse import Pulse
from tests.support.recovery import end_grace
from tests.support.tenants import make_tenant


def lapse(pulse: Pulse, attempt_id: bytes) -> None:
    """Let an attempt's lease have ended a moment ago."""
    sql = "UPDATE attempts SET lease_expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE attempt_id = %s"
    pulse.session.run(lambda tx: tx.execute(sql, (attempt_id,)))


def add_dispatcher(session: Session) -> None:
    """Register a dispatcher that lives."""
    session.run(
        lambda tx: beat_dispatcher(tx, new_id(), url="ws://127.0.0.1:1", hint_address=None, sessions=0)
    )


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait up to ten seconds for a condition that is read from the database."""
    with trio.fail_after(10):
        while not is_so():  # noqa: ASYNC110 - the event is in the database
            await trio.sleep(0.05)


@pytest.fixture
def own_pulse(own_session: Session) -> Pulse:
    return Pulse(own_session, make_tenant(own_session))


async def test_a_pass_ends_lapsed_leases_only(own_dsn: Dsn, own_pulse: Pulse) -> None:
    """An unstarted lapsed attempt goes back to waiting, a started one to review, a living one goes on."""
    own_pulse.submit_many(3)
    worker = own_pulse.worker()
    unstarted, started, living = worker.claim(3)
    worker.start(started)
    worker.start(living)
    for held in (unstarted, started):
        lapse(own_pulse, held.attempt_id)
    async with Database(own_dsn, writers=1, readers=1) as database:
        loop = ExpireLoop(database)
        stale = "UPDATE recovery_clock SET beat_at = beat_at - INTERVAL 5 SECOND"
        own_pulse.session.run(lambda tx: tx.execute(stale))
        assert await loop.run_once() == 0, "nothing may be judged without a fresh beat"
        end_grace(own_dsn)
        assert await loop.run_once() == 2
        assert await loop.run_once() == 0
    assert own_pulse.attempt(unstarted).state == AttemptState.EXPIRED
    assert own_pulse.task(unstarted.task_id).state == TaskState.WAITING
    assert own_pulse.task(started.task_id).state == TaskState.NEEDS_REVIEW
    assert own_pulse.attempt(living).state == AttemptState.RUNNING


async def test_two_recoverers_end_each_lease_once(own_dsn: Dsn, own_pulse: Pulse) -> None:
    """What two recoverers count together is exactly what had lapsed."""
    own_pulse.submit_many(40)
    worker = own_pulse.worker()
    for held in worker.claim(40):
        lapse(own_pulse, held.attempt_id)
    end_grace(own_dsn)
    counts: list[int] = []

    async def recover(database: Database) -> None:
        loop = ExpireLoop(database)
        counts.append(await loop.run_once() + await loop.run_once())

    async with (
        Database(own_dsn, writers=1, readers=1) as first,
        Database(own_dsn, writers=1, readers=1) as second,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recover, first)
        nursery.start_soon(recover, second)
    assert sum(counts) == 40
    assert own_pulse.usage().active == 0
    assert own_pulse.quota().active == 0


def test_a_recoverer_that_slept_harms_nothing(own_dsn: Dsn, own_pulse: Pulse) -> None:
    """C11, C14: candidates of an old look; meanwhile another recoverer acted and a worker claimed again."""
    own_pulse.submit()
    worker = own_pulse.worker()
    old = worker.claim_one()
    lapse(own_pulse, old.attempt_id)
    seen = own_pulse.session.run(lambda tx: find_expired(tx, 10))
    assert seen == {own_pulse.tenant.application_id: Expired(attempt_ids=[old.attempt_id])}
    end_grace(own_dsn)
    assert own_pulse.expire(old.attempt_id).attempts == 1
    new = worker.claim_one()
    assert new.task_id == old.task_id
    before = own_pulse.attempt(new), own_pulse.task(new.task_id), own_pulse.usage()
    end_grace(own_dsn)
    assert own_pulse.expire(old.attempt_id).attempts == 0
    assert (own_pulse.attempt(new), own_pulse.task(new.task_id), own_pulse.usage()) == before


async def test_a_locked_application_delays_no_other(
    own_dsn: Dsn, own_session: Session, own_pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C31: a lock-wait timeout in one application; the others are handled in the same pass, the loop lives on."""
    monkeypatch.setattr(session_module, "CONTENTION_TRIES", 1)
    pulses = [own_pulse, Pulse(own_session, make_tenant(own_session))]
    attempts = []
    for pulse in pulses:
        pulse.submit()
        held = pulse.worker().claim_one()
        lapse(pulse, held.attempt_id)
        attempts.append(held)
    blocker = Session(own_dsn)
    lock = "UPDATE application_quotas SET row_version = row_version + 1 WHERE application_id = %s"
    async with (
        Database(own_dsn, writers=1, readers=0) as beats,
        Database(own_dsn, writers=1, readers=0) as work,
    ):
        beat, expire, *_ = recovery_loops(work, beats, renew_ms=10_000)
        add_dispatcher(own_session)
        end_grace(own_dsn)

        def hold(tx: Tx) -> None:
            tx.execute(lock, (pulses[0].tenant.application_id,))
            with pytest.raises(StoreError):
                trio.from_thread.run(expire.run_once)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_loop, beat)
            await trio.to_thread.run_sync(blocker.run, hold)
            assert pulses[1].attempt(attempts[1]).state == AttemptState.EXPIRED
            assert pulses[0].attempt(attempts[0]).state == AttemptState.LEASED
            nursery.start_soon(run_loop, expire)
            await eventually(lambda: pulses[0].attempt(attempts[0]).state == AttemptState.EXPIRED)
            nursery.cancel_scope.cancel()
    blocker.close()


async def test_the_beat_outlives_a_lock_timeout(
    own_dsn: Dsn, own_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C31: while something holds the clock row the beat fails and backs off; afterwards it beats again."""
    monkeypatch.setattr(session_module, "CONTENTION_TRIES", 1)
    add_dispatcher(own_session)
    blocker = Session(own_dsn)
    read = "SELECT beat_at FROM recovery_clock"
    async with Database(own_dsn, writers=1, readers=0) as database:
        beat = BeatLoop(database, renew_ms=10_000)

        def hold(tx: Tx) -> None:
            tx.execute("SELECT * FROM recovery_clock FOR UPDATE")
            with pytest.raises(StoreError):
                trio.from_thread.run(beat.run_once)

        await trio.to_thread.run_sync(blocker.run, hold)
        before = own_session.run(lambda tx: tx.value(read))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_loop, beat.loop())
            await eventually(lambda: own_session.run(lambda tx: tx.value(read)) > before)
            nursery.cancel_scope.cancel()
    blocker.close()
