"""Private databases for tests: one per session, and as many more as a test wants to break."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orbit.admin.migrate import upgrade
from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance, create
from orbit.localdb.options import SMALL
from orbit.localdb.process import Lifetime
from orbit.store.dsn import Dsn

# Little memory, and commits that reach the operating system but aren't forced to its disk one by one: a killed server
# still loses nothing. That Orbit's own servers force them is proven by `test_commits_are_durable_and_logs_bounded`.
QUICK = {**SMALL, "innodb-flush-log-at-trx-commit": "2", "sync-binlog": "0"}


def chosen_flavour() -> Flavour:
    """The flavour that this run tests (`ORBIT_TEST_FLAVOUR`, default MySQL)."""
    return Flavour(os.environ.get("ORBIT_TEST_FLAVOUR", Flavour.MYSQL))


@contextmanager
def running_instance(
    flavour: Flavour | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Instance]:
    """A started instance in a temporary home; both vanish at the end, also when the test run is killed."""
    home = Path(tempfile.mkdtemp(prefix="orbit-test-"))
    try:
        instance = create(
            home,
            flavour or chosen_flavour(),
            settings={**QUICK, **(settings or {})},
            environment=environment,
            say=print,
        )
        try:
            instance.start(Lifetime.TEMPORARY)
            yield instance
        finally:
            instance.destroy()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def migrate(dsn: Dsn) -> None:
    """Bring the schema of an empty database to this checkout's release."""
    upgrade(dsn)
