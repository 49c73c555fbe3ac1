"""Wait until a started server accepts connections."""

from __future__ import annotations

import time
from collections.abc import Callable

from orbit.localdb.errors import LocalDatabaseError
from orbit.localdb.ports import probe_socket
from orbit.localdb.serverlog import ServerLog
from orbit.store.connection import connect
from orbit.store.dsn import Dsn
from orbit.store.failures import DriverError

# Recovery after a crash may replay a whole redo log; a server that is killed meanwhile would begin it again.
START_TIMEOUT_SECONDS = 600.0
POLL_SECONDS = 0.05


def wait_ready(has_ended: Callable[[], bool], log: ServerLog, *, admin: Dsn) -> None:
    """Return once root gets in; the statements of an init file have run by then.

    Raises:
        PortTaken: the server ended because its port is in use.
        LocalDatabaseError: it ended for another reason, or isn't ready within 600 s.
    """
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        if has_ended():
            raise log.failure()
        try:
            probe_socket(admin.unix_socket or "")
            connect(admin).close()
            return
        except (DriverError, OSError) as error:
            if time.monotonic() > deadline:
                line = f"the database accepts no connection after {START_TIMEOUT_SECONDS:.0f} s"
                raise LocalDatabaseError(f"{line} ({error}); see {log.file}") from error
        time.sleep(POLL_SECONDS)
