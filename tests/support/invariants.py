"""The invariant checker after every test that used the session's database, and checks that only tests can make."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from orbit.pulse.invariants import Violation, check_invariants
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx

_APPLICATIONS = "SELECT application_id FROM applications"
_LAPSED = """
SELECT LOWER(HEX(task_id)) FROM attempts
WHERE lease_expires_at < UTC_TIMESTAMP(6) - INTERVAL %s SECOND AND application_id = %s
"""
_STUCK = """
SELECT LOWER(HEX(t.task_id)) FROM tasks t JOIN lanes l ON l.lane_id = t.lane_id
JOIN queues q ON q.queue_id = t.queue_id
WHERE t.application_id = %s AND t.state = 'WAITING' AND t.available_at < UTC_TIMESTAMP(6) - INTERVAL %s SECOND
  AND l.occupied = 0 AND q.paused = 0
"""


@pytest.fixture(autouse=True)
def sound_database(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every invariant at the end of a test that used the shared database, in the applications that it made."""
    if "dsn" not in request.fixturenames:
        yield
        return
    session = _patient(request.getfixturevalue("dsn"))
    try:
        before = set(session.run(lambda tx: tx.rows(_APPLICATIONS)))
        yield
        after = set(session.run(lambda tx: tx.rows(_APPLICATIONS)))
        made = [row[0] for row in after - before]
        violations = session.run(lambda tx: _check(tx, made))
    finally:
        session.close()
    assert not violations, _text(violations)


def assert_sound(dsn: Dsn) -> None:
    """Check every invariant in the whole of a database, for example one that a test has broken and started again."""
    session = _patient(dsn)
    try:
        violations = session.run(check_invariants)
    finally:
        session.close()
    assert not violations, _text(violations)


def lapsed_attempts(tx: Tx, application_id: bytes, *, seconds: int) -> list[str]:
    """I10: return the tasks whose live attempt's lease ended longer ago than recovery may take; empty is right."""
    return [str(row[0]) for row in tx.rows(_LAPSED, (seconds, application_id))]


def stuck_tasks(tx: Tx, application_id: bytes, *, seconds: int) -> list[str]:
    """I10: return due tasks that wait although queue and key are free; right is none while workers are free."""
    return [str(row[0]) for row in tx.rows(_STUCK, (application_id, seconds))]


def _patient(dsn: Dsn) -> Session:
    """After a long storm a check of one invariant reads hundreds of thousands of tasks."""
    return Session(dsn, connector=partial(connect, read_timeout=600.0))


def _check(tx: Tx, application_ids: list[bytes]) -> list[Violation]:
    if not application_ids:
        return check_invariants(tx)
    return [
        violation for application_id in application_ids for violation in check_invariants(tx, application_id)
    ]


def _text(violations: list[Violation]) -> str:
    return "invariants broken:\n" + "\n".join(map(str, violations))
