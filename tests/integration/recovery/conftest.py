"""A database of its own for tests that move the recovery clock, which all applications share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from orbit.localdb.instance import Instance
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from tests.support.database import migrate


@pytest.fixture
def own_dsn(instance: Instance) -> Dsn:
    """The address of a fresh, migrated database."""
    name = f"orbit_recovery_{secrets.token_hex(6)}"
    instance.create_database(name)
    dsn = instance.dsn(name)
    migrate(dsn)
    return dsn


@pytest.fixture
def own_session(own_dsn: Dsn) -> Iterator[Session]:
    session = Session(own_dsn)
    yield session
    session.close()
