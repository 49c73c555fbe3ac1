"""Fixtures of the whole suite: the session's private database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbit.localdb.instance import Instance
from orbit.store.dsn import Dsn
from tests.support.api import api
from tests.support.database import migrate, running_instance
from tests.support.invariants import sound_database
from tests.support.pulse import pulse, worker
from tests.support.tenants import session, tenant, tenants

# Fixtures that every suite with a database uses.
__all__ = ["api", "dsn", "instance", "pulse", "session", "sound_database", "tenant", "tenants", "worker"]


@pytest.fixture(scope="session")
def instance() -> Iterator[Instance]:
    """The private server of this test session (flavour `ORBIT_TEST_FLAVOUR`); nothing may stop or break it."""
    with running_instance() as started:
        yield started


@pytest.fixture(scope="session")
def dsn(instance: Instance) -> Dsn:
    """The address of the session's database with the present schema; tests share it, each in its own application."""
    address = instance.dsn()
    migrate(address)
    return address
