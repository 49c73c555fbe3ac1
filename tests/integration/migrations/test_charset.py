"""C35: a database with another default charset is as good as any; tables that aren't ours any more are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbit.admin.migrate import upgrade
from orbit.domain.states import Outcome
from orbit.localdb.instance import Instance
from orbit.pulse.invariants import check_invariants
from orbit.pulse.queries import read_task
from orbit.store.drift import find_drift
from orbit.store.dsn import Dsn
from orbit.store.schema import SchemaMismatch, require_schema
from orbit.store.session import Session
from tests.support.pulse import Pulse, succeeded
from tests.support.tenants import make_tenant

FACE = "\U0001f600"


@pytest.fixture
def latin(instance: Instance, empty: Dsn) -> Iterator[Session]:
    """A migrated database that was created with a latin1 default."""
    instance.execute(f"ALTER DATABASE `{empty.database}` CHARACTER SET latin1")
    upgrade(empty)
    session = Session(empty)
    yield session
    session.close()


def test_a_latin1_default_changes_nothing_c35(empty: Dsn, latin: Session) -> None:
    """C35: four-byte characters in every text field are stored and returned as they came."""
    assert find_drift(empty) == []
    latin.run(require_schema)
    pulse = Pulse(latin, make_tenant(latin))
    text = f'{{"{FACE}": "{FACE}"}}'.encode()
    task_id = pulse.submit(payload=text, business_key=FACE, concurrency_key=FACE)
    worker = pulse.worker()
    held = worker.run_one()
    assert held.concurrency_key == FACE
    succeeded(worker.finish(held, Outcome.FAILED, error_code="X", error_message=FACE))
    detail = latin.run(lambda tx: read_task(tx, pulse.tenant.token, task_id))
    assert (detail.payload, detail.task.business_key, detail.task.error_message) == (text, FACE, FACE)
    cancelled = pulse.submit()
    succeeded(pulse.cancel_each([pulse.cancellation(cancelled, reason=FACE)])[0])
    assert latin.run(check_invariants) == []


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4 COLLATE utf8mb4_general_ci"])
def test_tables_of_another_charset_are_refused_c35(instance: Instance, empty: Dsn, charset: str) -> None:
    """C35: a table that would lose characters, or hold different keys to be equal: no process serves on it."""
    upgrade(empty)
    instance.execute(f"ALTER TABLE `{empty.database}`.tasks CONVERT TO CHARACTER SET {charset}")
    session = Session(empty)
    try:
        with pytest.raises(SchemaMismatch, match=r"tasks\.\w+ is (latin1|utf8mb4)_"):
            session.run(require_schema)
    finally:
        session.close()
