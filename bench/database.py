"""The private database that is measured against: durable, with room enough that no run meets a forced checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbit.localdb.apt import Say
from orbit.localdb.bundle import Flavour
from orbit.localdb.instance import Instance, create
from orbit.localdb.process import Lifetime
from orbit.store.migrations import upgrade

_POOL: Final = {"innodb-buffer-pool-size": str(512 * 1024 * 1024)}
# The redo log is what PostgreSQL's max_wal_size is in the comparison with other systems.
_SETTINGS: Final = {
    Flavour.MYSQL: {**_POOL, "innodb-redo-log-capacity": str(2 * 1024**3)},
    Flavour.MARIADB: {**_POOL, "innodb-log-file-size": str(2 * 1024**3)},
}
_TOLD: Final = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
)


@contextmanager
def running_database(flavour: Flavour, say: Say) -> Iterator[Instance]:
    """Run a fresh, migrated database in a temporary folder; nothing is left of it, however the process ends."""
    home = Path(tempfile.mkdtemp(prefix="orbit-bench-"))
    try:
        instance = create(home / "database", flavour, settings=_SETTINGS[flavour], say=say)
        try:
            instance.start(Lifetime.TEMPORARY)
            upgrade(instance.dsn(), say=lambda _: None)
            yield instance
        finally:
            instance.destroy()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def durability(instance: Instance) -> dict[str, str]:
    """Return the settings on which the figures rest, as the server itself has them."""
    names = ", ".join(f"@@{name}" for name in _TOLD)
    (row,) = instance.execute(f"SELECT {names}")
    return dict(zip(_TOLD, map(str, row), strict=True))
