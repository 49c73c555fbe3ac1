"""Fault tests break their own database, never the session's: one private server for them all, mended after each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit.localdb.instance import Instance, create
from orbit.store.session import Session
from tests.support.database import QUICK, chosen_flavour, migrate
from tests.support.invariants import assert_sound
from tests.support.processes import Site
from tests.support.pulse import Pulse
from tests.support.tenants import Tenant, make_tenant


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server that tests may kill, freeze and restart: its data outlives the process."""
    instance = create(tmp_path_factory.mktemp("victim"), chosen_flavour(), settings=QUICK, say=print)
    try:
        instance.start()
        migrate(instance.dsn())
        yield instance
    finally:
        instance.destroy()


@pytest.fixture
def site(victim: Instance, tmp_path: Path) -> Iterator[Site]:
    """An installation without processes yet; the books are checked once all of them have ended."""
    victim.start()
    with Site(victim.dsn(), tmp_path) as opened:
        yield opened
    assert_sound(victim.dsn())


@pytest.fixture
def home(site: Site) -> Iterator[Tenant]:
    """The application of one fault test."""
    session = Session(site.dsn)
    yield make_tenant(session)
    session.close()


@pytest.fixture
def direct(site: Site, home: Tenant) -> Iterator[Pulse]:
    """Look at the database, and submit, past all processes and proxies."""
    session = Session(site.dsn)
    yield Pulse(session, home)
    session.close()
