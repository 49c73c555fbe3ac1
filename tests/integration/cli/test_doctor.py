"""`orbit doctor --invariants` recounts the books and says where they are wrong."""

from __future__ import annotations

import secrets

from orbit.cli.doctor import examine_database
from orbit.localdb.instance import Instance
from orbit.store.session import Session
from tests.support.database import migrate
from tests.support.pulse import Pulse
from tests.support.rows import set_columns
from tests.support.tenants import make_tenant


def test_wrong_books_are_a_problem(instance: Instance) -> None:
    """Sound books are fine; a counter that is off by one is named; without the option nobody looks."""
    name = f"orbit_doctor_{secrets.token_hex(6)}"
    instance.create_database(name)
    dsn = instance.dsn(name)
    migrate(dsn)
    session = Session(dsn)
    try:
        pulse = Pulse(session, make_tenant(session))
        pulse.submit()
        states = {one.check: one.state for one in examine_database(dsn, invariants=True)}
        assert states == {"database": "ok", "schema": "ok", "invariants": "ok"}
        set_columns(session, "queue_usage", {"unfinished": 2}, queue_id=pulse.tenant.queue_id)
        assert {one.check for one in examine_database(dsn)} == {"database", "schema"}
        found = [one for one in examine_database(dsn, invariants=True) if one.check == "invariants"]
        assert {one.state for one in found} == {"problem"}
        assert any(pulse.tenant.queue_id.hex() in one.text.lower() for one in found)
    finally:
        session.close()
