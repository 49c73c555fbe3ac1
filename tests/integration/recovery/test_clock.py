"""The recovery clock: grace after an outage of recovery, of the dispatchers, and after steps of the database's clock.

A step of the clock is, for everything that is stored, the same as stored times moved the other way.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from orbit.domain.ids import new_id
from orbit.pulse.clock import Beat, Why, beat, beat_interval_ms, read_grace
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx

RENEW_MS = 10_000
FULL = timedelta(milliseconds=RENEW_MS + 5_000)
SECOND = timedelta(seconds=1)


def beaten(session: Session) -> Beat:
    return session.run(lambda tx: beat(tx, RENEW_MS))


def add_dispatcher(session: Session, *, age_seconds: float = 0) -> None:
    """Let a dispatcher's last heartbeat be this old."""
    sql = """
        INSERT INTO dispatchers (dispatcher_id, url, hint_address, sessions, started_at, heartbeat_at)
        VALUES (%s, 'ws://127.0.0.1:1', NULL, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND)
    """
    session.run(lambda tx: tx.execute(sql, (new_id(), int(age_seconds * 1e6))))


def step(session: Session, seconds: float) -> None:
    """Step the database's clock forward (back when negative), as seen from what is stored."""

    def work(tx: Tx) -> None:
        by = int(seconds * 1e6)
        tx.execute(
            "UPDATE recovery_clock SET beat_at = beat_at - INTERVAL %s MICROSECOND,"
            " grace_until = grace_until - INTERVAL %s MICROSECOND",
            (by, by),
        )
        tx.execute("UPDATE dispatchers SET heartbeat_at = heartbeat_at - INTERVAL %s MICROSECOND", (by,))

    session.run(work)


def judged(session: Session) -> bool:
    """Whether expiry would judge leases now."""
    return session.run(lambda tx: read_grace(tx) <= tx.now)


def settle(session: Session) -> datetime:
    """Bring the clock to its quiet state: a live dispatcher, a fresh beat, a grace that is over."""
    add_dispatcher(session)
    beaten(session)
    session.run(lambda tx: tx.execute("UPDATE recovery_clock SET grace_until = UTC_TIMESTAMP(6)"))
    found = beaten(session)
    assert found.why is None
    assert judged(session)
    return found.now


def test_quiet_beats_leave_the_grace_alone(own_session: Session) -> None:
    """With a live dispatcher and regular beats leases are judged."""
    settle(own_session)
    before = beaten(own_session)
    after = beaten(own_session)
    assert after.why is None
    assert after.grace_until == before.grace_until
    assert after.now > before.now


@pytest.mark.parametrize(
    ("silence", "why"), [(9.0, None), (10.5, Why.BEAT_MISSED), (7_200.0, Why.BEAT_MISSED)]
)
def test_a_missed_beat_gives_grace(own_session: Session, silence: float, why: Why | None) -> None:
    """Recovery or the database was away for longer than a renewal period: workers get one and five seconds."""
    settle(own_session)
    own_session.run(
        lambda tx: tx.execute(
            "UPDATE recovery_clock SET beat_at = beat_at - INTERVAL %s MICROSECOND", (int(silence * 1e6),)
        )
    )
    found = beaten(own_session)
    assert found.why is why
    assert (found.grace_until == found.now + FULL) is (why is not None)
    assert judged(own_session) is (why is None)


def test_nothing_is_judged_before_the_first_beat_after_an_outage(own_session: Session) -> None:
    """Expiry that comes back before the beat does must wait for its decision."""
    settle(own_session)
    step(own_session, 3)
    assert not judged(own_session)
    add_dispatcher(own_session)
    assert beaten(own_session).why is None
    assert judged(own_session)


def test_no_dispatcher_gives_grace_until_one_lives(own_session: Session) -> None:
    """While no dispatcher lives every beat extends the grace; it counts from the first live one."""
    beaten(own_session)
    first = beaten(own_session)
    second = beaten(own_session)
    assert first.why is second.why is Why.NO_DISPATCHER
    assert first.grace_until == first.now + FULL
    assert second.grace_until == second.now + FULL
    add_dispatcher(own_session)
    third = beaten(own_session)
    assert third.why is None
    assert third.grace_until == second.grace_until
    assert not judged(own_session)


@pytest.mark.parametrize(("age", "why"), [(14.0, None), (15.5, Why.NO_DISPATCHER)])
def test_a_dispatcher_lives_for_fifteen_seconds(own_session: Session, age: float, why: Why | None) -> None:
    """A heartbeat younger than 15 s counts, an older one doesn't; the freshest of all decides."""
    beaten(own_session)
    add_dispatcher(own_session, age_seconds=100)
    add_dispatcher(own_session, age_seconds=age)
    assert beaten(own_session).why is why


def test_a_clock_that_steps_forward_gives_grace(own_session: Session) -> None:
    """F30: every lease looks ended; none is judged until workers had a renewal period and five seconds."""
    settle(own_session)
    step(own_session, 7_200)
    assert not judged(own_session)
    found = beaten(own_session)
    assert found.why is Why.BEAT_MISSED
    assert found.grace_until == found.now + FULL
    add_dispatcher(own_session)
    assert not judged(own_session)


def test_a_clock_that_steps_back_neither_stops_recovery_nor_judges_blindly(own_session: Session) -> None:
    """The grace never lies further ahead than a full one, however large the step."""
    settle(own_session)
    step(own_session, 7_200)
    beaten(own_session)
    step(own_session, -7_200)
    assert not judged(own_session)
    found = beaten(own_session)
    assert found.why is Why.CLOCK_BACK
    assert found.grace_until == found.now + FULL
    assert beaten(own_session).grace_until <= found.now + FULL


def test_two_recoverers_beat_one_row(own_dsn: Dsn, own_session: Session) -> None:
    """Beats of several recoverers wait for one another, none sees the other's as missed, time never goes back."""
    settle(own_session)
    found: list[Beat] = []

    def run() -> None:
        session = Session(own_dsn)
        found.extend(beaten(session) for _ in range(25))
        session.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 75
    assert {one.why for one in found} == {None}
    last = own_session.run(lambda tx: tx.value("SELECT beat_at FROM recovery_clock"))
    assert last == max(one.now for one in found)


def test_the_beat_follows_short_leases() -> None:
    """Each second, four times per renewal period where that is shorter."""
    assert beat_interval_ms(10_000) == 1_000
    assert beat_interval_ms(1_000) == 250
