"""Empty databases for migrations to work on."""

from __future__ import annotations

import secrets

import pytest

from orbit.localdb.instance import Instance
from orbit.store.dsn import Dsn


@pytest.fixture
def empty(instance: Instance) -> Dsn:
    """The address of a fresh, empty database on the session's server."""
    name = f"orbit_migrate_{secrets.token_hex(6)}"
    instance.create_database(name)
    return instance.dsn(name)
