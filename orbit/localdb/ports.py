"""The ways in to private servers: free TCP ports, and whether a unix socket is served."""

from __future__ import annotations

import random
import socket

from orbit.localdb.errors import LocalDatabaseError

# Below the ports that systems give to outgoing connections: while a server restarts, none of those can take its port,
# and no client that tries to reconnect meets itself.
_RANGE = range(20_000, 30_000)
_TRIES = 200


def free_port() -> int:
    """Return a port on 127.0.0.1 that nothing listens on now.

    Raises:
        LocalDatabaseError: none was found.
    """
    for port in random.sample(_RANGE, _TRIES):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise LocalDatabaseError("no free port between 20000 and 30000 on 127.0.0.1")


def probe_socket(path: str) -> None:
    """Connect to a unix socket and hang up.

    PyMySQL leaks its socket when a unix socket isn't served, so that a wait loop asks here first.

    Raises:
        OSError: nothing is served there.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        probe.connect(path)
