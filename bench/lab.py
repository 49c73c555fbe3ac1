"""Everything that a measurement works with, and the one way in which it begins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.database import running_database
from bench.fleet import Fleet
from bench.scale import Scale
from bench.tenants import Tenant, make_tenant, wipe
from orbit.localdb.apt import Say
from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance
from orbit.store.session import Reader, Session


@dataclass(frozen=True, slots=True)
class Lab:
    """A database with a session on it, the daemons, the sizes, and a folder for what processes write.

    `reader` commits nothing: what looks while a measurement runs must not show in the database's counts of commits.
    """

    instance: Instance
    session: Session
    reader: Reader
    fleet: Fleet
    scale: Scale
    folder: Path
    say: Say

    def fresh(self) -> Tenant:
        """Empty the tables and return a new application."""
        wipe(self.instance.dsn())
        return make_tenant(self.session)

    def another(self) -> Tenant:
        """Return one more application on the same tables."""
        return make_tenant(self.session)


@contextmanager
def open_lab(flavour: Flavour, scale: Scale, say: Say) -> Iterator[Lab]:
    """Run a private database and what is started on it; all of it ends with the block."""
    with (
        running_database(flavour, say) as instance,
        tempfile.TemporaryDirectory(prefix="orbit-bench-") as name,
    ):
        session, reader = Session(instance.dsn()), Reader(instance.dsn())
        fleet = Fleet(instance.dsn(), session, Path(name))
        try:
            yield Lab(instance, session, reader, fleet, scale, Path(name), say)
        finally:
            fleet.stop()
            session.close()
            reader.close()
